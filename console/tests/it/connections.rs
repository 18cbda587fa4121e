//! What one host can hold of the console's listener.

use std::time::Duration;

use dvp_console::RequestTimes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::scene::{CONNECTIONS, Scene};

/// A form whose body never arrives as a whole.
const SLOW: &str = "POST /login HTTP/1.1\r\nHost: console\r\nOrigin: http://console.test:8081\r\nContent-Type: application/x-www-form-urlencoded\r\n\
                    Content-Length: 60000\r\n\r\nt";

struct Listening {
    port: u16,
    _stop: tokio_util::sync::DropGuard,
}

async fn listening(scene: &Scene) -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    let soon = Duration::from_millis(500);
    let console = scene.console().with_times(RequestTimes { arrival: soon, answer: soon });
    tokio::spawn(dvp_console::serve(listener, console, stop.clone()));
    Listening { port, _stop: stop.drop_guard() }
}

/// A connection from a loopback address that has sent a request.
async fn send(listening: &Listening, from: &str, request: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    let mut stream = socket.connect(format!("127.0.0.1:{}", listening.port).parse().unwrap()).await.unwrap();
    // A connection beyond the bound is closed, perhaps before this.
    drop(stream.write_all(request.as_bytes()).await);
    stream
}

/// What the console sends until it closes the connection.
async fn answer(mut stream: TcpStream) -> String {
    let mut read = Vec::new();
    let done = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut read)).await;
    assert!(done.is_ok(), "the connection is open for ever");
    String::from_utf8(read).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_arrive_in_time_ends_its_connection() {
    let scene = Scene::new().await;
    let listening = listening(&scene).await;
    let stream = send(&listening, "127.0.0.1", SLOW).await;
    let (mut reading, mut writing) = stream.into_split();
    // A byte now and then does not extend the time.
    let dripping = tokio::spawn(async move {
        while writing.write_all(b"t").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut read = String::new();
    let ended = tokio::time::timeout(Duration::from_secs(30), reading.read_to_string(&mut read)).await;
    dripping.abort();
    assert!(ended.is_ok(), "the console waits for ever");
    assert!(read.starts_with("HTTP/1.1 400") && read.contains("did not arrive in time"), "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_cannot_hold_every_connection() {
    let scene = Scene::new().await;
    let listening = listening(&scene).await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(send(&listening, "127.0.0.1", "GET /login").await);
    }
    let request = "GET /login HTTP/1.1\r\nHost: console\r\nConnection: close\r\n\r\n";
    let other = send(&listening, "127.0.0.2", request).await;
    let answered = tokio::time::timeout(Duration::from_secs(8), answer(other)).await;
    assert!(answered.expect("an operator reaches the console").starts_with("HTTP/1.1 200"));
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_take_its_answers_loses_its_connection() {
    let scene = Scene::new().await;
    let listening = listening(&scene).await;
    let request = "GET /login HTTP/1.1\r\nHost: console\r\n\r\n";
    let mut stream = send(&listening, "127.0.0.1", request).await;
    let asking = async { while stream.write_all(request.as_bytes()).await.is_ok() {} };
    let ended = tokio::time::timeout(Duration::from_secs(30), asking).await;
    assert!(ended.is_ok(), "the console waits for ever");
}
