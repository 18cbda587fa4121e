//! Unauthenticated peers: neither interface admits them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use super::fix_peers::garbage;
use super::target::Peer;
use crate::dice::Dice;
use crate::wire::{Line, Login, connect};

/// The service must close an unauthenticated connection within this time.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

fn elsewhere(dice: &mut Dice) -> Ipv4Addr {
    let last = 2 + u8::try_from(dice.roll(6)).unwrap_or(0);
    Ipv4Addr::new(127, 0, 0, last)
}

impl Peer {
    pub(super) async fn garbage(self) -> anyhow::Result<u64> {
        let mut dice = Dice::new(self.seed);
        let mut made = 0;
        while !self.stop.is_cancelled() {
            let from = if dice.roll(2) == 0 { Ipv4Addr::LOCALHOST } else { elsewhere(&mut dice) };
            if let Ok(mut stream) = connect(self.target.fix, from).await {
                let bytes = garbage(&mut dice, "FIX.4.4");
                let _ = stream.write_all(&bytes).await;
                made += 1;
                // Some stay connected and read.
                if dice.roll(4) == 0 {
                    tokio::spawn(tokio::time::timeout(Duration::from_secs(15), drain(stream)));
                }
            }
            tokio::time::sleep(self.pause).await;
        }
        Ok(made)
    }

    pub(super) async fn logons(self) -> anyhow::Result<u64> {
        let mut dice = Dice::new(self.seed);
        let mut made = 0;
        while !self.stop.is_cancelled() {
            let n = dice.roll(1_000_000);
            let (login, from) = match dice.roll(3) {
                // Unknown CompIDs, from the well-behaved partner's address too.
                0 => {
                    let from = if dice.roll(2) == 0 { Ipv4Addr::LOCALHOST } else { elsewhere(&mut dice) };
                    (Login { comp_id: format!("NOBODY{n}"), ..self.login.clone() }, from)
                }
                // The well-behaved partner's sessions, from elsewhere.
                1 => (dice.pick(&self.target.good_sessions).clone(), elsewhere(&mut dice)),
                // A stale password of the hostile partner's own, from the well-behaved partner's address.
                _ => (self.login.clone(), Ipv4Addr::LOCALHOST),
            };
            let login = Login { password: format!("wrong-{n}"), ..login };
            tokio::spawn(knock(self.clone(), from, login));
            made += 1;
            tokio::time::sleep(self.pause).await;
        }
        Ok(made)
    }

    pub(super) async fn storms(self, burst: usize) -> anyhow::Result<u64> {
        let mut dice = Dice::new(self.seed);
        let mut made = 0;
        while !self.stop.is_cancelled() {
            let from = elsewhere(&mut dice);
            for to in [self.target.fix, self.target.http] {
                let mut open = Vec::new();
                for _ in 0..burst {
                    if let Ok(stream) = connect(to, from).await {
                        // Half of them are reset instead of closed.
                        if dice.roll(2) == 0 {
                            let _ = stream.set_zero_linger();
                        }
                        open.push(stream);
                        made += 1;
                    }
                }
            }
            tokio::time::sleep(self.pause).await;
        }
        Ok(made)
    }

    /// Keeps `count` requests half-open: heads and bodies that come a byte at a time, or no bytes at all.
    pub(super) async fn half_open(self, count: usize) -> anyhow::Result<u64> {
        let mut slots = tokio::task::JoinSet::new();
        for n in 0..count {
            let me = self.clone();
            slots.spawn(async move {
                let mut dice = Dice::new(me.seed ^ u64::try_from(n).unwrap_or(0));
                let mut made = 0;
                while !me.stop.is_cancelled() {
                    made += 1;
                    let from = elsewhere(&mut dice);
                    let slow = drip(me.target.http, from, dice.roll(3));
                    tokio::select! {
                        is_ended = tokio::time::timeout(ENDED_WITHIN, slow) => {
                            let promise = "a half-open request is ended by the service";
                            me.promises.check(is_ended.is_ok(), promise, || format!("open after {ENDED_WITHIN:?}"));
                        }
                        () = me.stop.cancelled() => {}
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                made
            });
        }
        Ok(slots.join_all().await.into_iter().sum())
    }
}

/// Reads until the connection ends.
async fn drain(mut from: impl AsyncRead + Unpin) {
    let mut buffer = [0; 1024];
    while from.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
}

/// One Logon that must be refused: the answer must not be a Logon.
async fn knock(me: Peer, from: Ipv4Addr, login: Login) {
    let Ok(mut line) = Line::open(me.target.fix, from, &login, 1).await else { return };
    if line.send_logon(&[(141, "Y")]).await.is_err() {
        return;
    }
    if let Ok(Some(answer)) = tokio::time::timeout(Duration::from_secs(15), line.next()).await {
        let promise = "a Logon with a wrong password is refused";
        me.promises.check(answer.msg_type() != b"A", promise, || login.session_id());
    }
}

/// A request that never becomes whole; ends when the service has enough of it.
async fn drip(to: SocketAddr, from: Ipv4Addr, kind: u64) {
    let Ok(stream) = connect(to, from).await else { return };
    let (reader, mut writer) = stream.into_split();
    let writing = async {
        let start: &[u8] = match kind {
            0 => b"",
            1 => b"GET /v1/pairs HTTP/1.1\r\nhost: dvp\r\nx-long: ",
            _ => b"POST /v1/intents HTTP/1.1\r\nhost: dvp\r\nx-api-key: nobody\r\ncontent-length: 50000\r\n\r\n",
        };
        if writer.write_all(start).await.is_err() {
            return;
        }
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if kind > 0 && writer.write_all(b"x").await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = drain(reader) => {}
    }
}
