//! Frames in, one by one, as long as there is room for what they lead to.

use dvp_fix::codec::{Garbled, MessageRef};
use tracing::{debug, warn};

use super::{Broken, CloseReason, Driver, OUT_MAX};
use crate::{application::Application, connection::Inbound};

impl<A: Application> Driver<A> {
    /// Takes frames that were read already, as long as there is room in flight.
    pub(super) async fn read_frames(&mut self) -> Result<(), Broken> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        // Taken out while its frames are looked at, so that none has to be copied.
        let mut inbound = std::mem::take(&mut connection.inbound);
        let done = self.take_frames(&mut inbound).await;
        if let Some(connection) = &mut self.connection {
            connection.inbound = inbound;
        }
        done
    }

    async fn take_frames(&mut self, inbound: &mut Inbound) -> Result<(), Broken> {
        while self.may_take_more() {
            let Some(connection) = &self.connection else { return Ok(()) };
            match inbound.next(connection.frame_max) {
                Ok(Some(frame)) => self.frame(frame).await?,
                Ok(None) => return Ok(()),
                Err(error) => {
                    warn!(session = self.name, %error, "connection given up");
                    return Err(Broken::Connection(CloseReason::FrameTooLong));
                }
            }
            self.encode_ready();
            if self.out.len() >= OUT_MAX {
                self.write_out().await?;
            }
        }
        Ok(())
    }

    async fn frame(&mut self, frame: Result<MessageRef<'_>, Garbled>) -> Result<(), Broken> {
        match frame {
            Ok(message) => {
                let now = self.now;
                if self.is_cut_off && message.msg_type() != b"5" {
                    return Ok(());
                }
                if !self.limiter.count(message.msg_type(), now.mono) {
                    return self.cut_off(now).await;
                }
                self.session.handle_message(now, message);
                self.drain(Some(message)).await
            }
            Err(error) => {
                debug!(session = self.name, %error, "garbled message ignored");
                self.session.handle_garbled(self.now);
                self.drain(None).await
            }
        }
    }
}
