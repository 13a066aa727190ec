//! The page at `/`: one document with its style and script in it, which reads `/debug/overview`.
//!
//! Its Content-Security-Policy lets exactly this style and this script run, and requests go to this server
//! alone. Names and messages are the users' input: the script writes them as text only.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{Html, IntoResponse};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

const DOCUMENT: &str = include_str!("page/page.html");
const STYLE: &str = concat!(include_str!("page/page.css"), include_str!("page/job.css"));
/// The parts of the script, each a concept. They share one scope, which is closed to everything else.
const SCRIPT: &str = concat!(
    "\"use strict\";\n(() => {\n",
    include_str!("page/dom.js"),
    include_str!("page/address.js"),
    include_str!("page/client.js"),
    include_str!("page/cluster.js"),
    include_str!("page/list.js"),
    include_str!("page/canvas.js"),
    include_str!("page/pods.js"),
    include_str!("page/map.js"),
    include_str!("page/timeline.js"),
    include_str!("page/why.js"),
    include_str!("page/nodes.js"),
    include_str!("page/podtable.js"),
    include_str!("page/log.js"),
    include_str!("page/tabs.js"),
    include_str!("page/actions.js"),
    include_str!("page/machine.js"),
    include_str!("page/job.js"),
    include_str!("page/main.js"),
    "})();\n"
);

static PAGE: LazyLock<String> =
    LazyLock::new(|| DOCUMENT.replace("/*style*/", STYLE).replace("/*script*/", SCRIPT));

static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| STANDARD.encode(digest(&SHA256, text.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

pub(super) async fn page() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, POLICY.as_str())], Html(PAGE.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        assert!(PAGE.contains(STYLE) && PAGE.contains(SCRIPT));
        for loads in ["http://", "https://", "//cdn", "@import", "url(", " src=", "<link rel=\"stylesheet"] {
            assert!(!PAGE.contains(loads), "{loads}");
        }
    }

    #[test]
    fn users_input_is_only_ever_text() {
        for parser in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
        {
            assert!(!SCRIPT.contains(parser), "{parser}");
        }
        for handler in [" onclick=", " onload=", " oninput=", " style="] {
            assert!(!DOCUMENT.contains(handler), "{handler}");
        }
    }
}
