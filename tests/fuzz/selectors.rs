//! Query strings: selectors of labels, fields and shards, and all other options of a list.

use rand::rngs::SmallRng;

use crate::api::{Api, Call};
use crate::driver::{Target, fuzz};
use crate::mutate;

struct Selectors(Api);

const SEEDS: [&str; 12] = [
    "labelSelector\na in (b,c),!d,e=f,g!=h,i notin (j),k,l==m,n>1,o<2",
    "labelSelector\nbatch.kubernetes.io/job-name in (x)",
    "fieldSelector\nmetadata.name=a,metadata.namespace!=b,status.phase=Running,spec.nodeName==",
    "fieldSelector\na\\,b=c\\=d",
    "shardSelector\nshardRange(object.metadata.uid,'0x8000000000000000','0x10000000000000000')",
    "shardSelector\nshardRange(object.metadata.uid,'0x0','0x1') || shardRange(object.metadata.uid,'0x2','0x3')",
    "continue\neyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0",
    "limit\n9223372036854775807",
    "resourceVersion\n18446744073709551615",
    "timeoutSeconds\n9223372036854775807",
    "watch\ntrue",
    "fieldManager\nä",
];

impl Target for Selectors {
    const NAME: &str = "selectors";

    fn mutate(&self, input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
        mutate::text(input, others, random)
    }

    fn run(&self, input: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(input);
        let mut query = form_urlencoded::Serializer::new(String::new());
        // A name, a line break, a value, and so on.
        let mut lines = text.lines();
        while let (Some(name), Some(value)) = (lines.next(), lines.next()) {
            query.append_pair(name, value);
        }
        let query = query.finish();
        for path in ["/api/v1/namespaces/default/pods", "/apis/batch/v1/jobs"] {
            self.0.send(&Call {
                method: "GET".into(),
                path: format!("{path}?{query}"),
                ..Call::default()
            })?;
        }
        Ok(())
    }
}

#[test]
fn selectors() {
    let seeds = SEEDS.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    fuzz(&Selectors(Api::new(Selectors::NAME)), seeds);
}
