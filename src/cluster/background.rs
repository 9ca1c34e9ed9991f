//! Tasks that run for as long as the process: one that ends leaves the rest working on what nobody keeps any more.

use tokio::task::{JoinError, JoinSet};

/// Waits until one of the tasks ends, and says how in words. None of them ends by itself, so whoever hears this ends too: started again,
/// a process does better than half of it. An empty set is waited on for ever.
pub async fn first_to_end(tasks: &mut JoinSet<()>) -> String {
    match tasks.join_next().await {
        Some(ended) => how(ended),
        None => std::future::pending().await,
    }
}

/// How a task ended that should not have.
pub fn how(ended: Result<(), JoinError>) -> String {
    let error = match ended {
        Ok(()) => return "it returned".to_owned(),
        Err(error) => error,
    };
    match error.try_into_panic() {
        Ok(panic) => {
            let said = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned());
            format!("it panicked: {}", said.unwrap_or_default())
        }
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn the_first_task_that_ends_is_heard_with_its_words() {
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async { panic!("no such {}", "kind") });
        assert_eq!(first_to_end(&mut tasks).await, "it panicked: no such kind");
        tasks.spawn(async {});
        assert_eq!(first_to_end(&mut tasks).await, "it returned");
    }
}
