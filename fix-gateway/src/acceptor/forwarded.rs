//! The listener for connections that other processes forward. Only they pass its handshake.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use metrics::counter;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{ACCEPT_PAUSE, ATTACH_WAIT, Directory, SessionKey, first_message};
use crate::{
    connection::{Attach, Connection, Pass, read},
    forward::{Forwarding, Verdict},
    gate::Origin,
};

/// From the connection to its Logon.
const OPEN_MAX: Duration = Duration::from_secs(5);
/// Connections without a verdict at once.
const OPENING_MAX: usize = 1024;
/// The size limit of a Logon. The forwarding process has a lower one.
const LOGON_BYTES_MAX: usize = 8 * 1024;

/// Accepts forwarded connections until shutdown is requested.
pub(crate) async fn accept_forwarded(
    listener: Arc<TcpListener>,
    forwarding: Forwarding,
    directory: Directory,
    shutdown: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(OPENING_MAX));
    let mut opening = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = opening.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, process) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "accepting a forwarded connection failed, will retry");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            warn!(%process, "too many forwarded connections without a verdict");
            continue;
        };
        let (forwarding, directory) = (forwarding.clone(), directory.clone());
        opening.spawn(async move {
            let _place = place;
            let _ = stream.set_nodelay(true);
            match timeout(OPEN_MAX, open(&forwarding, stream)).await {
                Ok(Ok((connection, stopping, origin))) => {
                    admit(&directory, connection, stopping, origin, process).await;
                }
                Ok(Err(error)) => {
                    warn!(%process, %error, "connection of no process of this service refused");
                    counter!("dvp_fix_connections_refused_total", "reason" => "not_a_process").increment(1);
                }
                Err(_) => debug!(%process, "a forwarded connection was not opened in time"),
            }
        });
    }
    opening.shutdown().await;
}

/// The handshake and the header.
async fn open(
    forwarding: &Forwarding,
    stream: TcpStream,
) -> std::io::Result<(Connection, CancellationToken, Origin)> {
    let (forwarded, origin) = forwarding.accept(stream).await?;
    let stopping = forwarded.stopping();
    Ok((Connection::new(Box::new(forwarded), origin.addr, LOGON_BYTES_MAX, None), stopping, origin))
}

/// Reads the Logon, and passes the connection to its session if the peer may use it.
async fn admit(
    directory: &Directory,
    mut connection: Connection,
    stopping: CancellationToken,
    origin: Origin,
    process: SocketAddr,
) {
    let Ok(Some(logon)) = timeout(OPEN_MAX, first_message(&mut connection)).await else { return };
    let entry = SessionKey::of(&logon).and_then(|key| directory.find_here(&key));
    let Some(entry) = entry else {
        connection.send(&[Verdict::NotHere.code()]).await;
        return;
    };
    let admission = match entry.gatekeeper.admit(&read(entry.gatekeeper.encoding(), &logon), &origin).await {
        Ok(admission) => admission,
        Err(reason) => {
            info!(peer = %origin.addr, %process, %reason, "forwarded connection refused");
            if reason.is_told() {
                // As if it were the session's: the peer gets the answer of an owner.
                connection.send(&[Verdict::Admitted.code()]).await;
                connection.refuse(&logon, &reason.to_string()).await;
            } else {
                connection.send(&[Verdict::Refused(reason).code()]).await;
            }
            return;
        }
    };
    let Ok(Ok(place)) = timeout(ATTACH_WAIT, entry.sender.reserve()).await else {
        connection.send(&[Verdict::Busy.code()]).await;
        return;
    };
    info!(peer = %origin.addr, %process, "forwarded connection accepted");
    // The session's bytes follow the verdict.
    connection.send(&[Verdict::Admitted.code()]).await;
    let pass = Pass { gatekeeper: entry.gatekeeper, origin, admission };
    place.send(Attach::new(connection, logon, pass, Some(stopping)));
}
