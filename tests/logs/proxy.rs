//! A TCP proxy whose connections can be cut.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Forwards connections to one address until the process ends.
pub(super) struct Proxy {
    port: u16,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Listens on a free port.
    pub(super) fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let (target, connections) = (target.to_owned(), open.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&target) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || forward(from, to));
                }
                connections.lock().unwrap().push(client);
            }
        });
        Self { port, open }
    }

    /// The address, as a URL.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Cuts all connections in the middle of what they transfer. Returns how many were open.
    pub(super) fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.open.lock().unwrap());
        open.iter().filter(|connection| connection.shutdown(Shutdown::Both).is_ok()).count()
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    // A connection that was cut ends both directions.
    let _copied = io::copy(&mut from, &mut to);
    let _closed = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
