//! A headless Chromium, driven over the DevTools protocol.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::binary::PATIENCE;

/// A tab of a browser, which ends when this is dropped.
pub(crate) struct Browser {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    session: String,
    next: u64,
    /// Complaints of the page: exceptions, and violations of its security policy.
    pub(crate) complaints: Vec<Value>,
    process: Child,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

impl Browser {
    /// Starts a browser; `None` where none is installed, which only developers' machines may do without.
    pub(crate) async fn start() -> Option<Self> {
        let programs = ["chromium", "chromium-browser", "google-chrome"];
        let Some(program) = programs.iter().find_map(|name| which::which(name).ok()) else {
            assert!(std::env::var_os("CI").is_none(), "no browser: none of {programs:?} is installed");
            println!("skipped: none of {programs:?} is installed");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut process = Command::new(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--hide-scrollbars", "--remote-debugging-port=0"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the browser has ended");
            if let Some(address) = line.trim().strip_prefix("DevTools listening on ") {
                break address.to_owned();
            }
        };
        // A full pipe would block it.
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        let (socket, _) = connect_async(address).await.unwrap();
        let mut browser = Self {
            socket,
            session: String::new(),
            next: 0,
            complaints: Vec::new(),
            process,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach).await;
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({})).await;
        }
        let size = json!({"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", size).await;
        Some(browser)
    }

    /// Sends a command and returns its result.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut command = json!({"id": self.next, "method": method, "params": params});
        if !self.session.is_empty() {
            command["sessionId"] = self.session.as_str().into();
        }
        self.socket.send(Message::text(command.to_string())).await.unwrap();
        loop {
            let message = tokio::time::timeout(PATIENCE, self.socket.next()).await.unwrap().unwrap().unwrap();
            let Message::Text(text) = message else { continue };
            let mut message: Value = serde_json::from_str(&text).unwrap();
            if message["id"] == self.next {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
            let bad_log =
                message["method"] == "Log.entryAdded" && message["params"]["entry"]["level"] == "error";
            if bad_log || message["method"] == "Runtime.exceptionThrown" {
                self.complaints.push(message["params"].take());
            }
        }
    }

    /// Opens an address.
    pub(crate) async fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({"url": url})).await;
        assert!(opened.get("errorText").is_none(), "{url}: {opened}");
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'").await;
    }

    /// The value of an expression in the page; promises are awaited.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", params).await;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression in the page is true.
    pub(crate) async fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.value(expression).await != true {
            if Instant::now() >= deadline {
                let text = self.value("document.body.innerText").await;
                panic!("still not: {expression}\n{}", text.as_str().unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Presses a key, as a user does.
    pub(crate) async fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            " " => 32,
            "Escape" => 27,
            "n" => 78,
            other => panic!("{other}"),
        };
        let text = match key {
            "Enter" => "\r",
            " " | "n" => key,
            _ => "",
        };
        for kind in ["keyDown", "keyUp"] {
            let key =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", key).await;
        }
    }

    /// Shows pages in a theme, `light` or `dark`.
    pub(crate) async fn theme(&mut self, name: &str) {
        let theme = json!({"features": [{"name": "prefers-color-scheme", "value": name}]});
        self.call("Emulation.setEmulatedMedia", theme).await;
    }

    /// A picture of what the window shows, as WebP.
    pub(crate) async fn picture(&mut self) -> Vec<u8> {
        use base64::Engine as _;
        let picture = self.call("Page.captureScreenshot", json!({"format": "webp", "quality": 90})).await;
        base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }

    /// Processor time that the page's thread has used, in milliseconds.
    pub(crate) async fn processor_ms(&mut self) -> f64 {
        let answer = self.call("Performance.getMetrics", json!({})).await;
        let metrics = answer["metrics"].as_array().unwrap();
        let tasks = metrics.iter().find(|metric| metric["name"] == "TaskDuration").unwrap();
        tasks["value"].as_f64().unwrap() * 1000.0
    }
}
