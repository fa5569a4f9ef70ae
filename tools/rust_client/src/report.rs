//! What came of each call, a line each: `ok` or `failed`, the call, the error; parted by tabs.

use iggy::prelude::IggyError;
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

const ANSWER_SECONDS_MAX: u64 = 30;
const SHOWN_MAX: usize = 300;

/// Waits for the answer to a call, but not for ever: the SDK connects again without end.
pub async fn answer<T>(call: impl Future<Output = Result<T, IggyError>>) -> Result<T, String> {
    match tokio::time::timeout(Duration::from_secs(ANSWER_SECONDS_MAX), call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(format!("{} {}: {error}", error.as_code(), error.as_string())),
        Err(_) => Err(format!("no answer after {ANSWER_SECONDS_MAX} s")),
    }
}

/// Says what came of a call, and gives its value.
pub fn tell<T>(call: &str, result: Result<T, String>) -> Option<T> {
    match result {
        Ok(value) => {
            println!("ok\t{call}\t");
            Some(value)
        }
        Err(error) => {
            println!("failed\t{call}\t{}", on_one_line(&error));
            None
        }
    }
}

/// Makes an answer that is not right an error.
pub fn check<T: Debug>(
    result: Result<T, String>,
    is_right: impl FnOnce(&T) -> bool,
) -> Result<T, String> {
    let value = result?;
    let shown = format!("{value:?}");
    if is_right(&value) { Ok(value) } else { Err(format!("answered wrongly: {shown}")) }
}

/// Makes an answer an error, and the refusal with this status what is right.
pub fn refusal<T: Debug>(result: Result<T, String>, code: u32) -> Result<(), String> {
    match result {
        Err(error) if error.starts_with(&format!("{code} ")) => Ok(()),
        Err(error) => Err(format!("wanted the refusal {code}, got {error}")),
        Ok(value) => Err(format!("wanted the refusal {code}, got {value:?}")),
    }
}

fn on_one_line(text: &str) -> String {
    text.chars().map(|each| if each.is_control() { ' ' } else { each }).take(SHOWN_MAX).collect()
}

/// A call that is to succeed: `ok!("ping", client.ping())`; gives an option.
#[macro_export]
macro_rules! ok {
    ($call:expr, $future:expr) => {
        $crate::report::tell($call, $crate::report::answer($future).await)
    };
    ($call:expr, $future:expr, $is_right:expr) => {
        $crate::report::tell(
            $call,
            $crate::report::check($crate::report::answer($future).await, $is_right),
        )
    };
}

/// A call that is to be refused: `refused!("ping", 40, client.ping())`.
#[macro_export]
macro_rules! refused {
    ($call:expr, $code:expr, $future:expr) => {
        $crate::report::tell(
            $call,
            $crate::report::refusal($crate::report::answer($future).await, $code),
        )
    };
}
