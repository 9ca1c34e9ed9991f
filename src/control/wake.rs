//! Wakes a loop when one named object changes.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, pin_mut};
use kube::{Api, api::WatchParams};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::cluster::client::{CALL_TIMEOUT, within};

/// The server is asked to end a watch after so many seconds.
const WATCH_SECONDS: u32 = 15;
/// The pause after a watch that failed.
const PAUSE: Duration = Duration::from_secs(2);

/// Notifies at each change of the object `name`, for as long as it is polled. An account that may watch one name only is enough. What
/// happens between two watches is not missed: each begins with the object as it is.
pub async fn on_changes<K>(api: Api<K>, name: &'static str, notify: Arc<Notify>)
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let params = WatchParams::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(WATCH_SECONDS);
    loop {
        match within(CALL_TIMEOUT, api.watch(&params, "0")).await {
            Ok(events) => {
                pin_mut!(events);
                let broken = loop {
                    match events.next().await {
                        Some(Ok(_)) => notify.notify_one(),
                        Some(Err(error)) => break Some(error),
                        None => break None,
                    }
                };
                match broken {
                    Some(error) => tracing::debug!(name, %error, "a watch broke off"),
                    None => continue,
                }
            }
            Err(error) => tracing::debug!(name, %error, "cannot watch"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
