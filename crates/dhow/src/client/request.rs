//! One question to the API.

use reqwest::Method;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

/// What a request carries.
#[derive(Clone, Debug)]
pub enum Body {
    Empty,
    Json(Value),
    Bytes(Vec<u8>),
}

/// A request below `/api/v1`. The path's parts are encoded where they are put together.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub method: Method,
    pub path: &'a [&'a str],
    pub query: Vec<(&'a str, String)>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Body,
}

impl<'a> Request<'a> {
    pub fn get(path: &'a [&'a str]) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn post(path: &'a [&'a str]) -> Self {
        Self::new(Method::POST, path)
    }

    pub fn put(path: &'a [&'a str]) -> Self {
        Self::new(Method::PUT, path)
    }

    pub fn delete(path: &'a [&'a str]) -> Self {
        Self::new(Method::DELETE, path)
    }

    fn new(method: Method, path: &'a [&'a str]) -> Self {
        Self {
            method,
            path,
            query: Vec::new(),
            headers: Vec::new(),
            body: Body::Empty,
        }
    }

    #[must_use]
    pub fn query(mut self, name: &'a str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    /// Leaves the parameter out where there is no value.
    #[must_use]
    pub fn query_if(self, name: &'a str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    #[must_use]
    pub fn json(mut self, value: Value) -> Self {
        self.body = Body::Json(value);
        self
    }

    #[must_use]
    pub fn bytes(mut self, bytes: Vec<u8>) -> Self {
        self.body = Body::Bytes(bytes);
        self
    }

    /// Whether it changes something, so that it needs a key.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }
}
