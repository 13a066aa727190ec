//! Requests to an engine that is away for a while, as while it is restarted.

use std::time::Duration;

use bollard::errors::Error;

use super::{is_unanswered, said};

/// The pause after the first attempt without an answer. Each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The pauses between the attempts of a request until the engine answers.
#[derive(Debug)]
pub(super) struct Patience {
    /// The aim of the request, for logs.
    aim: &'static str,
    pause: Duration,
}

impl Patience {
    pub(super) fn new(aim: &'static str) -> Self {
        Self { aim, pause: FIRST_PAUSE }
    }

    /// Pauses after an attempt that had no answer: the engine may have done what was asked.
    ///
    /// # Errors
    /// The answer of the engine, if there is one.
    pub(super) async fn after(&mut self, error: Error) -> Result<(), Error> {
        if !is_unanswered(&error) {
            return Err(error);
        }
        tracing::warn!(error = said(&error), "no answer of the engine, which is to {}", self.aim);
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_is_away_is_asked_again_and_one_that_refuses_is_not() {
        let mut patience = Patience::new("start");
        let begun = Instant::now();
        for (error, passed) in [
            (Error::RequestTimeoutError, 100),
            (Error::IOError { err: std::io::ErrorKind::ConnectionRefused.into() }, 300),
            (Error::SocketNotFoundError("/run/engine.sock".into()), 700),
        ] {
            patience.after(error).await.unwrap();
            assert_eq!(begun.elapsed().as_millis(), passed);
        }
        for _ in 0..10 {
            patience.after(Error::RequestTimeoutError).await.unwrap();
        }
        assert_eq!(patience.pause, LONGEST_PAUSE);
        let refused = Error::DockerResponseServerError { status_code: 500, message: "no".into() };
        assert!(patience.after(refused).await.is_err());
    }
}
