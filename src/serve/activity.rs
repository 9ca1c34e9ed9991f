//! What a connection is doing and since when, so that one that does nothing can be closed.
//!
//! hyper's own time-out for reading a head also runs while a kept connection is idle, and would close connections
//! that the API server is about to use; so the time-outs are ours.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Shared by a connection's transport, its requests and the task that drives it.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    opened: Instant,
    /// Milliseconds since `opened` at which the phase began, times four, plus the phase.
    state: AtomicU64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// A head has begun to arrive.
    Head = 0,
    /// A request is in hand; its own deadline bounds it.
    Serving = 1,
    /// Before the first request, or between two.
    Idle = 2,
}

/// How long a phase may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) head: Duration,
    pub(super) idle: Duration,
}

impl Activity {
    /// A connection that was just opened. It is idle: API servers open more than they need at a moment and keep them for later, and
    /// one that is closed under a request fails that request.
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            opened: Instant::now(),
            state: AtomicU64::new(Phase::Idle as u64),
        }))
    }

    /// A head has arrived.
    pub(super) fn serving(&self) {
        self.enter(Phase::Serving);
    }

    /// The answer is made.
    pub(super) fn idle(&self) {
        self.enter(Phase::Idle);
    }

    fn bytes_arrived(&self) {
        if self.state().0 == Phase::Idle {
            self.enter(Phase::Head);
        }
    }

    fn enter(&self, phase: Phase) {
        let since = u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or(u64::MAX >> 2);
        self.0
            .state
            .store(since << 2 | phase as u64, Ordering::Relaxed);
    }

    fn state(&self) -> (Phase, Duration) {
        let state = self.0.state.load(Ordering::Relaxed);
        let phase = match state & 3 {
            0 => Phase::Head,
            1 => Phase::Serving,
            _ => Phase::Idle,
        };
        (phase, Duration::from_millis(state >> 2))
    }

    /// Why the connection should be closed at `now`, if it should.
    pub(super) fn overdue(&self, patience: Patience, now: Instant) -> Option<&'static str> {
        let (phase, since) = self.state();
        let lasted = now
            .saturating_duration_since(self.0.opened)
            .saturating_sub(since);
        match phase {
            Phase::Head if lasted >= patience.head => Some("slow_head"),
            Phase::Idle if lasted >= patience.idle => Some("idle"),
            _ => None,
        }
    }
}

/// A transport that tells when bytes arrive on an idle connection.
pub(super) struct Watched<S> {
    pub(super) inner: S,
    pub(super) activity: Activity,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.bytes_arrived();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        head: Duration::from_secs(5),
        idle: Duration::from_secs(180),
    };

    #[test]
    fn a_head_may_take_seconds_and_an_idle_connection_minutes() {
        let activity = Activity::new();
        let opened = activity.0.opened;
        assert_eq!(
            activity.overdue(PATIENCE, opened + Duration::from_secs(179)),
            None,
            "it may be kept for later before its first request"
        );
        activity.bytes_arrived();
        assert_eq!(
            activity.overdue(PATIENCE, opened + Duration::from_secs(4)),
            None
        );
        assert_eq!(
            activity.overdue(PATIENCE, opened + Duration::from_secs(6)),
            Some("slow_head")
        );
        activity.serving();
        assert_eq!(
            activity.overdue(PATIENCE, opened + Duration::from_secs(3600)),
            None
        );
        activity.bytes_arrived();
        assert_eq!(
            activity.overdue(PATIENCE, opened + Duration::from_secs(3600)),
            None
        );
        activity.idle();
        assert_eq!(
            activity.overdue(PATIENCE, opened + Duration::from_secs(100)),
            None
        );
        assert_eq!(
            activity.overdue(PATIENCE, opened + Duration::from_secs(200)),
            Some("idle")
        );
        activity.bytes_arrived();
        assert_eq!(
            activity.overdue(PATIENCE, opened + Duration::from_secs(10)),
            Some("slow_head")
        );
    }
}
