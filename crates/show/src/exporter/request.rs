//! One request of HTTP/1.1 and its answer. Pure.

use super::Page;
use super::page::Form;

/// Bytes of a request at most.
pub(super) const REQUEST_MAX: usize = 8 << 10;
/// Headers of a request at most.
const HEADERS_MAX: usize = 64;
/// A page older than this many intervals is unhealthy.
const STALE: u64 = 3;

const HOME: &str = "numatop-ng: metrics are at /metrics, health at /-/healthy\n";

/// The answer to the bytes received so far; `None`: more is needed.
pub(super) fn answer(received: &[u8], page: &Page, now_wall_ns: i64) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(received) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if received.len() < REQUEST_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(response("431 Request Header Fields Too Large", PLAIN, "too long\n", true));
        }
        Err(_) => return Some(response("400 Bad Request", PLAIN, "not HTTP/1.1\n", true)),
    }
    let method = request.method.unwrap_or_default();
    if !matches!(method, "GET" | "HEAD") {
        return Some(response("405 Method Not Allowed", PLAIN, "GET or HEAD\n", true));
    }
    let body = method == "GET";
    let target = request.path.unwrap_or_default();
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    Some(match path {
        "/metrics" if page.made_wall_ns == 0 => {
            response("503 Service Unavailable", PLAIN, "the first interval has not ended yet\n", body)
        }
        "/metrics" => {
            let form = wanted(&request);
            let text = if form == Form::Text { &page.text } else { &page.open_metrics };
            response("200 OK", form.content_type(), text, body)
        }
        "/-/healthy" if is_fresh(page, now_wall_ns) => response("200 OK", PLAIN, "healthy\n", body),
        "/-/healthy" => response(
            "503 Service Unavailable",
            PLAIN,
            "the last sample is older than three intervals\n",
            body,
        ),
        "/" => response("200 OK", PLAIN, HOME, body),
        _ => response("404 Not Found", PLAIN, HOME, body),
    })
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn is_fresh(page: &Page, now_wall_ns: i64) -> bool {
    let age = now_wall_ns.saturating_sub(page.made_wall_ns);
    page.made_wall_ns > 0 && age <= (STALE * page.interval_ns.max(1_000_000_000)) as i64
}

/// The form that the reader asks for; text where it does not say.
fn wanted(request: &httparse::Request<'_, '_>) -> Form {
    let accepts = request.headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("accept")
            && header.value.windows(OPEN_METRICS.len()).any(|word| word.eq_ignore_ascii_case(OPEN_METRICS))
    });
    if accepts { Form::OpenMetrics } else { Form::Text }
}

const OPEN_METRICS: &[u8] = b"application/openmetrics-text";

/// One answer a connection: a reader every few seconds gains nothing by an open one.
fn response(status: &str, content_type: &str, text: &str, body: bool) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    let mut bytes = head.into_bytes();
    if body {
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page() -> Page {
        Page {
            text: "text\n".into(),
            open_metrics: "# EOF\n".into(),
            made_wall_ns: 10_000_000_000,
            interval_ns: 5_000_000_000,
        }
    }

    fn asked(request: &str) -> Option<String> {
        let answer = answer(request.as_bytes(), &page(), 11_000_000_000)?;
        Some(String::from_utf8(answer).unwrap())
    }

    #[test]
    fn each_path_and_method_has_its_answer() {
        for (request, status, body) in [
            ("GET /metrics HTTP/1.1\r\n\r\n", "200", "text\n"),
            (
                "GET /metrics?x=1 HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n",
                "200",
                "# EOF\n",
            ),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200", ""),
            ("GET /-/healthy HTTP/1.1\r\n\r\n", "200", "healthy\n"),
            ("GET / HTTP/1.0\r\n\r\n", "200", HOME),
            ("GET /etc/passwd HTTP/1.1\r\n\r\n", "404", HOME),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405", "GET or HEAD\n"),
            ("\u{16}\u{3}\u{1}\r\n\r\n", "400", "not HTTP/1.1\n"),
        ] {
            let answer = asked(request).unwrap();
            let (head, got) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {head}");
            assert_eq!(got, body, "{request:?}");
        }
    }

    #[test]
    fn a_request_that_is_not_whole_waits_and_one_that_is_too_long_ends() {
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost: x"), None);
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(REQUEST_MAX));
        assert!(asked(&long).unwrap().starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn the_page_is_not_healthy_without_a_sample_or_after_three_intervals() {
        let healthy = |page: &Page, now| {
            String::from_utf8(answer(b"GET /-/healthy HTTP/1.1\r\n\r\n", page, now).unwrap())
                .unwrap()
                .contains(" 200 ")
        };
        assert!(healthy(&page(), 25_000_000_000) && !healthy(&page(), 25_000_000_001));
        assert!(!healthy(&Page::default(), 0));
        let none = answer(b"GET /metrics HTTP/1.1\r\n\r\n", &Page::default(), 0).unwrap();
        assert!(none.starts_with(b"HTTP/1.1 503 "));
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer_or_need_more(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
            let answer = answer(&bytes, &page(), 0);
            prop_assert!(answer.is_some() || bytes.len() < REQUEST_MAX);
        }
    }
}
