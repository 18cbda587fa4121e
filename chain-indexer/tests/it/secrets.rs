//! The URL of an endpoint may hold a provider's key: no error names it, whatever the endpoint answers.

use alloy::providers::Provider as _;
use dvp_chain_indexer::rpc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const KEY: &str = "d2f7c1e49ab84f0f";

/// A node that answers every request with these bytes. Returns its URL.
async fn answering(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{KEY}:{KEY}@{at}/v2/{KEY}?token={KEY}")
}

#[tokio::test]
async fn no_error_of_an_endpoint_names_its_key() {
    let http = |status: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let unauthorized = http("401 Unauthorized", &format!("no such key: {KEY} ({KEY}:{KEY})"));
    let garbage = http("200 OK", &format!("<html>/v2/{KEY}</html>"));
    let cut = http("200 OK", "{}").replace("content-length: 2", "content-length: 200");
    let urls = [
        format!("http://127.0.0.1:1/v2/{KEY}"),
        format!("http://{KEY}.invalid/v2/{KEY}"),
        answering(unauthorized).await,
        answering(garbage).await,
        answering(cut).await,
    ];
    for (n, url) in urls.iter().enumerate() {
        let error = rpc::head(&rpc::connect(url).unwrap()).await.unwrap_err();
        let said = format!("{error} {error:?}");
        // The host is no secret.
        assert!(!said.replace(&format!("{KEY}.invalid"), "").contains(KEY), "{n}: {said}");
    }
}

#[tokio::test]
async fn an_error_of_json_rpc_is_read_under_any_status_and_answers_are_read_as_they_are() {
    let error = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32005,"message":"too many requests"}}"#;
    let block = r#"{"jsonrpc":"2.0","id":0,"result":null}"#;
    for (status, body, said) in
        [("429 Too Many Requests", error, "too many requests"), ("200 OK", block, "null")]
    {
        let url = answering(format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        let error = rpc::head(&rpc::connect(&url.await).unwrap()).await.unwrap_err();
        assert!(error.to_string().to_lowercase().contains(said), "{error}");
    }
}

#[tokio::test]
async fn a_limited_request_is_repeated_alone_as_the_endpoint_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let http = |status: &str, more: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nconnection: close\r\n{more}content-length: {length}\r\n\r\n{body}")
    };
    let limited =
        r#"{"jsonrpc":"2.0","id":0,"error":{"code":429,"message":"compute units per second capacity"}}"#;
    let answers = [
        http("429 Too Many Requests", "retry-after: 1\r\n", "slow down"),
        http("200 OK", "", limited),
        http("200 OK", "", r#"{"jsonrpc":"2.0","id":0,"result":"0x7"}"#),
    ];
    let serving = tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let begun = std::time::Instant::now();
    let chain = rpc::connect(&format!("http://{at}/")).unwrap().get_chain_id().await.unwrap();
    assert_eq!(chain, 7);
    assert!(begun.elapsed() >= std::time::Duration::from_secs(1), "earlier than the endpoint said");
    serving.await.unwrap();
}
