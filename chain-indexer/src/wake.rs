//! Notifications of new blocks over a websocket, to end a wait early.
//!
//! Invariant: data from the websocket is not used; a notification only triggers a query. A lost connection only costs
//! time, and is reconnected. No log line names the URL, which may hold a provider's key.

use crate::rpc::without_secrets;
use alloy::providers::{Provider, ProviderBuilder, WsConnect};
use alloy::transports::TransportError;
use alloy::transports::http::reqwest::Url;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

const CONNECT_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Notifies `news` at each new head, until the handle is dropped.
pub(crate) fn on_heads(ws_url: String, news: Arc<Notify>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            if let Err(error) = listen(&ws_url, &news).await {
                let error = complaint(&error, &ws_url);
                tracing::debug!(error, "no news of blocks over the websocket");
            }
            tokio::time::sleep(CONNECT_AGAIN_AFTER).await;
        }
    }))
}

/// The error without what may be secret in the URL.
fn complaint(error: &TransportError, ws_url: &str) -> String {
    match ws_url.parse::<Url>() {
        Ok(url) => without_secrets(error.to_string(), &url),
        // The error may quote what it could not read.
        Err(_) => "ws_url is no URL".to_owned(),
    }
}

/// Returns when the connection ends.
async fn listen(ws_url: &str, news: &Notify) -> Result<(), TransportError> {
    let provider = ProviderBuilder::new().connect_ws(WsConnect::new(ws_url)).await?;
    let mut heads = provider.subscribe_blocks().await?;
    while heads.recv().await.is_ok() {
        news.notify_one();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    const KEY: &str = "d2f7c1e49ab84f0f";

    /// A node that answers each websocket's request with these bytes.
    async fn answering(answer: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        format!("ws://{at}/v2/{KEY}?token={KEY}")
    }

    #[tokio::test]
    async fn no_complaint_about_a_websocket_names_its_key() {
        let refused = format!(
            "HTTP/1.1 401 no such key {KEY}\r\nx-key: {KEY}\r\nlocation: /v2/{KEY}\r\ncontent-length: 0\r\n\r\n"
        );
        let urls = [
            answering(refused).await,
            answering(format!("{KEY} is no HTTP\r\n\r\n")).await,
            format!("ws://127.0.0.1:1/v2/{KEY}"),
            format!("ftp://127.0.0.1:1/v2/{KEY}"),
            format!("ws://{KEY}:{KEY}@127.0.0.1:1/"),
            format!("{KEY} is no URL"),
        ];
        for url in urls {
            let error = listen(&url, &Notify::new()).await.unwrap_err();
            let said = complaint(&error, &url);
            assert!(!said.is_empty() && !said.contains(KEY), "{said}");
        }
    }

    #[test]
    fn a_complaint_leaves_out_each_secret_part_of_the_url() {
        let url = format!("wss://node.example/v2/{KEY}?token={KEY}x&net=main");
        let error =
            alloy::transports::TransportErrorKind::custom_str(&format!("cannot reach {url}, not {KEY}x"));
        let said = complaint(&error, &url);
        assert!(said.contains("node.example") && !said.contains(KEY), "{said}");
    }
}
