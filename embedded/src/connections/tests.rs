#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::*;

/// The server is so busy that its newcomers are old before it reads their requests.
#[tokio::test]
async fn a_burst_that_a_slow_server_cannot_keep_up_with_is_served() {
    const CLIENTS: usize = 200;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let limits = HttpLimits { newcomers: 4, ..HttpLimits::default() };
    let places = Places::new(&limits, 2);
    let port = Port {
        listener,
        transport: Transport::Clear,
        limits,
        places,
        stop: stop.clone(),
        tasks: tasks.clone(),
    };
    let serving = tokio::spawn(port.serve(|_request, newcomer: Arc<Newcomer>| async move {
        std::thread::sleep(Duration::from_millis(10));
        newcomer.welcome();
        Ok::<_, Infallible>(Response::new(String::new()))
    }));

    let answers = tokio::task::spawn_blocking(move || {
        let clients = (0..CLIENTS).map(|_| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            client
        });
        let clients: Vec<TcpStream> = clients.collect();
        let answer = |mut client: &TcpStream| {
            let mut answer = [0; 15];
            client.read_exact(&mut answer).is_ok_and(|()| answer == *b"HTTP/1.1 200 OK")
        };
        clients.iter().filter(|client| answer(client)).count()
    });
    assert_eq!(answers.await.unwrap(), CLIENTS);

    stop.cancel();
    serving.await.unwrap();
    tasks.close();
    tasks.wait().await;
}
