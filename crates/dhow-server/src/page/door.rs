//! All addresses of the page, and what stands before every one of them: pages of other sites stay out, whoever looks is
//! known, what is sent is sent by a form of this page, and what is answered may load and run nothing but its own.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use dhow_wire::{Problem, ProblemCode};
use futures_util::FutureExt;

use super::context::Page;
use super::cookie;
use super::format::escaped;
use super::limits::FORM_BYTES_MAX;
use super::viewer::{Viewer, is_tls};
use super::{actions, assets, document, live, login, plan};
use crate::api::{Access, Inside, OfSession};
use crate::net::identity::Peer;
use crate::net::lobby::Visit;

/// Nothing from elsewhere, nothing inside the document, and nobody's frame.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                              img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    // With none at all a browser would not say where its own forms come from.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-embedder-policy", "require-corp"),
];

/// The longest that a form may take to come.
const FORM_TIMEOUT: Duration = Duration::from_secs(30);

/// The name of the field that every form has.
pub(super) const FORM_WORD: &str = "form_word";

/// The page with all its addresses.
pub fn routes(inside: Inside) -> Router {
    let page = Page::new(inside);
    let known = Router::new()
        .route("/ui/", get(document::show))
        .route("/ui/{*path}", get(document::show))
        .route("/ui/live", get(live::stream))
        .route("/ui/logout", post(login::leave))
        .route("/ui/plan", get(document::show).post(plan::make))
        .route("/ui/deploy", post(actions::deploy))
        .route("/ui/deployments/{name}/restart", post(actions::restart))
        .route("/ui/deployments/{name}/scale", post(actions::scale))
        .route("/ui/deployments/{name}/rollback", post(actions::rollback))
        .route("/ui/nodes/{id}/drain", post(actions::drain))
        .route("/ui/nodes/{id}/undrain", post(actions::undrain))
        .layer(middleware::from_fn_with_state(page.clone(), admit));
    let open = Router::new()
        .route("/", get(begin))
        .route("/ui", get(begin))
        .route("/ui/login", get(login::show).post(login::enter))
        .route("/ui/style.css", get(assets::style))
        .route("/ui/page.js", get(assets::script))
        .route("/ui/icon.svg", get(assets::icon));
    open.merge(known)
        .layer(middleware::from_fn(guard))
        .with_state(page)
}

async fn begin() -> Redirect {
    Redirect::to("/ui/")
}

/// Keeps other sites out, and puts on every answer what it may do.
async fn guard(request: Request, next: Next) -> Response {
    let checked = Access::check_page(&request).and_then(|()| check_site(&request));
    let mut response = match checked {
        Err(problem) => document::refusal(&problem).into_response(),
        Ok(()) => {
            let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
            answered.unwrap_or_else(|_| {
                tracing::error!(
                    "a page failed; this is a bug in Dhow, please report it with the lines above"
                );
                let detail = "this is a bug in Dhow; the server's log says more";
                document::refusal(&Problem::new(ProblemCode::Internal, detail)).into_response()
            })
        }
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// A link on another site may lead here, and shows what somebody without a session sees. Everything else from there is
/// refused.
fn check_site(request: &Request) -> Result<(), Box<Problem>> {
    let headers = request.headers();
    let says = |name: &str, value: &str| {
        let mut said = headers.get_all(name).iter();
        said.next().is_some_and(|said| said == value) && said.next().is_none()
    };
    let is_link = *request.method() == Method::GET
        && says("sec-fetch-mode", "navigate")
        && says("sec-fetch-dest", "document");
    let mut sites = headers.get_all("sec-fetch-site").iter();
    let is_own = sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
    if !(is_own || is_link) {
        return Err(forbidden(
            "pages of other sites may not do this: `Sec-Fetch-Site` names one",
        ));
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match is_read || is_own_origin(request) {
        true => Ok(()),
        false => Err(forbidden(
            "pages of other sites may not do this: `Origin` names one",
        )),
    }
}

/// Whether the page that sends this is of the host that it is sent to. Programs name none.
fn is_own_origin(request: &Request) -> bool {
    let headers = request.headers();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return true;
    };
    let host = request.uri().authority().map(|authority| authority.as_str());
    let host = host.or_else(|| headers.get(header::HOST)?.to_str().ok());
    let origin = origin.to_str().ok();
    let authority = origin.and_then(|origin| {
        let rest = origin.strip_prefix("https://");
        rest.or_else(|| origin.strip_prefix("http://"))
    });
    authority.is_some() && authority == host && origins.next().is_none()
}

fn forbidden(detail: &str) -> Box<Problem> {
    Box::new(Problem::new(ProblemCode::Forbidden, detail))
}

/// What a form has sent, in the order of its fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Nothing where the field is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    fn of(body: &[u8]) -> Self {
        let pairs = body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
        let read = pairs.map(|pair| {
            let mut parts = pair.splitn(2, |byte| *byte == b'=');
            let (key, value) = (parts.next(), parts.next());
            (
                unescaped(key.unwrap_or_default()),
                unescaped(value.unwrap_or_default()),
            )
        });
        Self(read.collect())
    }
}

/// As forms write it.
fn unescaped(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let digits = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (code, byte) {
            (Some(code), _) => {
                bytes.push(code);
                at += 2;
            }
            (None, b'+') => bytes.push(b' '),
            (None, byte) => bytes.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads the form of a request, which says that it is one.
pub(super) async fn read_form(request: &mut Request) -> Result<Fields, Box<Problem>> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_form = kind.split(';').next().map(str::trim) == Some("application/x-www-form-urlencoded");
    let refused = |code, detail: &str| Box::new(Problem::new(code, detail));
    if !is_form {
        return Err(refused(
            ProblemCode::UnsupportedMediaType,
            "only a form of the page is taken here",
        ));
    }
    let body = std::mem::take(request.body_mut());
    match tokio::time::timeout(FORM_TIMEOUT, axum::body::to_bytes(body, FORM_BYTES_MAX)).await {
        Ok(Ok(bytes)) => Ok(Fields::of(&bytes)),
        Ok(Err(_)) => Err(refused(
            ProblemCode::TooLarge,
            "the form is too long, or did not come whole",
        )),
        Err(_) => Err(refused(
            ProblemCode::RequestTimeout,
            "the form did not come in time",
        )),
    }
}

/// Finds out who looks, and lets nobody else pass.
async fn admit(State(page): State<Page>, mut request: Request, next: Next) -> Response {
    let viewer = match find(&page, &mut request).await {
        Ok(viewer) => viewer,
        Err(problem) => {
            let peer = request.extensions().get::<Peer>().copied();
            if problem.status != 401 {
                return document::refusal(&problem).into_response();
            }
            // A browser that has not been here yet shows nothing: that is no refusal to write down.
            if request.headers().contains_key(header::AUTHORIZATION) {
                page.inside.access.tell_refused(peer, &problem.detail);
                return document::refusal(&problem).into_response();
            }
            return to_login(&request);
        }
    };
    if let Some(visit) = &viewer.visit {
        visit.prove(Some(&viewer.principal.text()));
    }
    if *request.method() == Method::POST {
        let fields = match read_form(&mut request).await {
            Ok(fields) => fields,
            Err(problem) => return document::refusal(&problem).into_response(),
        };
        if fields.get(FORM_WORD) != Some(viewer.form_word.as_str()) {
            let detail = "the form is not of this session: go back, load the page again and repeat it";
            return document::refusal(&forbidden(detail)).into_response();
        }
        request.extensions_mut().insert(fields);
    }
    let principal = viewer.principal.clone();
    request.extensions_mut().insert(viewer);
    let response = next.run(request).await;
    page.inside.access.while_good(&principal, response)
}

async fn find(page: &Page, request: &mut Request) -> Result<Viewer, Box<Problem>> {
    let extensions = request.extensions();
    let (peer, visit) = (
        extensions.get::<Peer>().copied(),
        extensions.get::<Visit>().cloned(),
    );
    let authorization = request.headers().get(header::AUTHORIZATION).cloned();
    let is_known_otherwise = authorization.is_some() || matches!(peer, Some(Peer::Unix { .. }));
    let word = cookie::read(request.headers(), is_tls(peer)).filter(|_| !is_known_otherwise);
    let session = word.and_then(|word| page.sessions.find(&word, page.now_unix_secs()));
    let session = session.map(|(key, token)| (key, OfSession(token)));
    if let Some((_, session)) = &session {
        request.extensions_mut().insert(session.clone());
    }
    let principal = page.inside.access.admit_page(request).await;
    let principal = principal.inspect_err(|problem| {
        // Its token is gone, and does not come back.
        if let Some((key, _)) = session.as_ref().filter(|_| problem.status == 401) {
            page.sessions.close(key);
        }
    })?;
    Ok(Viewer {
        name: principal.author().await.to_string(),
        form_word: page.form_word(session.as_ref().map(|(key, _)| key.as_slice()), &principal),
        principal,
        session,
        peer,
        visit,
        authorization,
    })
}

/// A page is shown after the login; what the script asks for only fails.
fn to_login(request: &Request) -> Response {
    let is_page = *request.method() == Method::GET && request.uri().path() != "/ui/live";
    if !is_page {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let place = request.uri().path_and_query().map(|place| place.as_str());
    match place.filter(|place| *place != "/ui/") {
        Some(place) => Redirect::to(&format!("/ui/login?next={}", escaped(place))).into_response(),
        None => Redirect::to("/ui/login").into_response(),
    }
}

/// Whether an answer may lead there: to a page of this server and nowhere else.
pub(super) fn is_own_place(place: &str) -> bool {
    let is_plain = place.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    place.starts_with("/ui/") && is_plain && !place.contains("//")
}

/// The page that a form was sent from, where that is one of this server.
pub(super) fn back(fields: &Fields) -> &str {
    let place = fields.get("back").filter(|place| is_own_place(place));
    place.unwrap_or("/ui/")
}

/// The headers with which a cookie is set.
pub(super) fn with_cookie(mut response: Response, cookie: &str) -> Response {
    let headers: &mut HeaderMap = response.headers_mut();
    // Hexadecimal digits and our own words.
    if let Ok(value) = HeaderValue::from_str(cookie) {
        headers.insert(header::SET_COOKIE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read_as_browsers_write_them() {
        let fields = Fields::of(b"a=1&b=x+y%2Bz%26&c=&d&file=%C3%A4%0A&bad=%zz%");
        assert_eq!(fields.get("a"), Some("1"));
        assert_eq!(fields.get("b"), Some("x y+z&"));
        assert_eq!(fields.get("c"), None);
        assert_eq!(fields.get("d"), None);
        assert_eq!(fields.get("file"), Some("ä\n"));
        assert_eq!(fields.get("bad"), Some("%zz%"));
    }

    #[test]
    fn no_answer_leads_elsewhere() {
        for place in ["/ui/", "/ui/nodes?q=a&page=2", "/ui/deployments/shop"] {
            assert!(is_own_place(place), "{place}");
        }
        for place in [
            "",
            "/",
            "//evil.example/ui/",
            "https://evil.example/ui/",
            "/ui//evil",
            "/ui/\\evil",
            "/uix",
            "/ui/ x",
            "/ui/\r\nset-cookie: a=b",
        ] {
            assert!(!is_own_place(place), "{place}");
        }
    }
}
