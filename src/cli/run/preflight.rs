//! Why the pods of a Job could never run on the embedded cluster, and what to do about it: said before it starts.

use serde_json::Value;

use super::check::Problem;
use yardmaster_embedded::kubelet::preflight::{Machine, Obstacle, WORD_MAX, obstacles};

/// The way out where this machine cannot do what the Job asks for.
const ELSEWHERE: &str = "--kubeconfig FILE runs it on a cluster";

/// The problems of a valid Job with its defaults, each with a text that ends with the next step.
pub(super) fn problems(job: &Value, machine: &Machine) -> Vec<Problem> {
    let found = obstacles(&job["spec"]["template"]["spec"], machine).into_iter();
    let problem = |(field, obstacle)| {
        let missing = match &obstacle {
            Obstacle::Object(kind, name) => Some((*kind, name.clone())),
            _ => None,
        };
        Problem { field: format!("spec.template.spec.{field}"), text: explained(obstacle), missing }
    };
    found.map(problem).collect()
}

fn explained(obstacle: Obstacle) -> String {
    match obstacle {
        Obstacle::Unsupported(text) => format!("{text}; or {ELSEWHERE}"),
        Obstacle::NotOnHost(text) => {
            format!(
                "{text}: pods run programs of this machine, images are not pulled; install it, or {ELSEWHERE}"
            )
        }
        // No cluster of Linux nodes is a way out.
        Obstacle::TooLong(length) => format!(
            "{length} bytes, but Linux gives a program at most {WORD_MAX} in one argument or variable: put the text into \
             a file"
        ),
        Obstacle::Object(kind, name) => format!(
            "{kind} {name:?} is in none of the files: add it to one, or run the Job with --kubeconfig FILE on a cluster \
             that has it"
        ),
        Obstacle::Resource { name, asked, there } => {
            let there = there.map_or_else(|| "none".to_owned(), |there| format!("only {there}"));
            format!("{asked} of {name}: this machine has {there}; ask for less, or {ELSEWHERE}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use yardmaster_embedded::kubelet::preflight::Runtime;
    use yardmaster_embedded::kubelet::{Mounting, NODE, Workspace};

    use super::*;

    #[test]
    fn each_problem_names_its_field_and_a_way_out() {
        let container = json!({
            "name": "c", "image": "busybox",
            "envFrom": [{"secretRef": {"name": "db"}}],
            "resources": {"limits": {"nvidia.com/gpu": "8"}},
            "volumeMounts": [{"name": "v", "mountPath": "/opt"}],
        });
        let pod = json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [container]});
        let job = json!({"spec": {"template": {"spec": pod}}});
        let mounting = Mounting::ByVariable { why: "a test".into() };
        let runtime = Runtime::Processes(Workspace::OfPod, mounting);
        let problems = problems(&job, &Machine::new(NODE, runtime, &[]));
        let fields: Vec<_> = problems
            .iter()
            .filter_map(|problem| problem.field.strip_prefix("spec.template.spec.containers[0]."))
            .collect();
        let expected = [
            "command",
            "volumeMounts[0].mountPath",
            "envFrom[0].secretRef.name",
            "resources.limits[nvidia.com/gpu]",
        ];
        assert_eq!(fields, expected);
        for Problem { field, text, .. } in problems {
            assert!(text.contains("--kubeconfig FILE"), "{field}: {text}");
        }
    }
}
