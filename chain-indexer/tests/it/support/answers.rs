//! A node whose answers a test makes: JSON-RPC over HTTP.

use alloy::providers::{DynProvider, Provider as _};
use alloy::transports::RpcError;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) trait Answers: Send + Sync + 'static {
    fn answer(&self, call: &Value) -> impl Future<Output = Value> + Send;

    /// The most calls that it takes as one request.
    fn batch_max(&self) -> usize {
        usize::MAX
    }
}

pub(crate) async fn forward(node: &DynProvider, call: &Value) -> Value {
    let (id, method) = (&call["id"], call["method"].as_str().unwrap().to_owned());
    match node.raw_request::<_, Value>(method.into(), call["params"].clone()).await {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(RpcError::ErrorResp(error)) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        // The node has ended with the test.
        Err(_) => Value::Null,
    }
}

/// Serves until the test ends. Returns the URL.
pub(crate) async fn serve(node: Arc<impl Answers>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(Arc::clone(&node), stream));
        }
    });
    url
}

async fn converse(node: Arc<impl Answers>, mut stream: TcpStream) {
    let mut read = Vec::new();
    loop {
        let head = read.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let body = head.and_then(|at| {
            let text = String::from_utf8_lossy(&read[..at]).to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length:"))?;
            let end = at + 4 + length.trim().parse::<usize>().unwrap();
            (read.len() >= end).then_some((at + 4, end))
        });
        let Some((from, end)) = body else {
            let mut part = [0; 8192];
            match stream.read(&mut part).await {
                Ok(0) | Err(_) => return,
                Ok(length) => read.extend_from_slice(&part[..length]),
            }
            continue;
        };
        let request: Value = serde_json::from_slice(&read[from..end]).unwrap();
        read.drain(..end);
        let answer = match &request {
            Value::Array(calls) if calls.len() > node.batch_max() => {
                let error = json!({"code": -32600, "message": "batch too large"});
                json!([{"jsonrpc": "2.0", "id": calls[0]["id"], "error": error}])
            }
            Value::Array(calls) => {
                let mut answers = Vec::new();
                for call in calls {
                    answers.push(node.answer(call).await);
                }
                Value::Array(answers)
            }
            call => node.answer(call).await,
        };
        let body = answer.to_string();
        let sent = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(sent.as_bytes()).await.is_err() {
            return;
        }
    }
}
