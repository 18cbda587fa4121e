//! Notifications of new blocks over a websocket, to end a wait early.
//!
//! Invariant: data from the websocket is not used; a notification only triggers a query. A lost connection only costs
//! time, and is reconnected.

use alloy::providers::{Provider, ProviderBuilder, WsConnect};
use alloy::transports::TransportError;
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
                tracing::debug!(%error, "no news of blocks over the websocket");
            }
            tokio::time::sleep(CONNECT_AGAIN_AFTER).await;
        }
    }))
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
