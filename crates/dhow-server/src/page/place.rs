//! Which page an address means. The same address is asked for as a document and as a stream.

use super::format::escaped;
use super::limits::SEARCH_CHARS_MAX;

/// One page with what it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageAddress {
    Overview {
        search: String,
        page: usize,
    },
    Deployment {
        name: String,
    },
    Service {
        deployment: String,
        name: String,
        page: usize,
        only_ill: bool,
    },
    Replica {
        deployment: String,
        id: String,
    },
    Diff {
        deployment: String,
        from: u64,
        to: u64,
    },
    Nodes(NodesQuery),
    Node {
        id: u64,
        page: usize,
    },
    Events(EventsQuery),
    Plan,
}

/// What of the nodes is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodesQuery {
    pub search: String,
    pub status: String,
    pub sort: String,
    pub page: usize,
}

/// What of the events is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventsQuery {
    pub search: String,
    /// As the browser's field for a time has it, in UTC.
    pub from: String,
    pub to: String,
    /// Only what somebody asked for.
    pub audit: bool,
    /// Those on disk, too.
    pub all: bool,
}

/// The pairs of a query.
struct Pairs(Vec<(String, String)>);

impl Pairs {
    fn text(&self, name: &str) -> String {
        let found = self.0.iter().find(|(key, _)| key == name);
        let text = found.map(|(_, value)| value.as_str()).unwrap_or_default();
        text.trim().chars().take(SEARCH_CHARS_MAX).collect()
    }

    fn is_set(&self, name: &str) -> bool {
        !self.text(name).is_empty()
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// Counted from 1 for people.
    fn page(&self) -> usize {
        let page = usize::try_from(self.number("page")).unwrap_or(usize::MAX);
        page.clamp(1, 1_000_000) - 1
    }
}

impl PageAddress {
    /// None where there is no such page. Parts of the path are as browsers write them.
    pub fn of(path: &str, query: &str) -> Option<Self> {
        let uri = format!("/?{query}").parse().ok()?;
        let read = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri).ok()?;
        let query = Pairs(read.0);
        let parts: Vec<String> = path.strip_prefix("/ui/")?.split('/').map(unescaped).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let text = |part: &str| part.to_owned();
        let page = query.page();
        Some(match parts.as_slice() {
            [""] => Self::Overview {
                search: query.text("q"),
                page,
            },
            ["plan"] => Self::Plan,
            ["nodes"] => Self::Nodes(NodesQuery {
                search: query.text("q"),
                status: query.text("status"),
                sort: query.text("sort"),
                page,
            }),
            ["nodes", id] => Self::Node {
                id: id.parse().ok()?,
                page,
            },
            ["events"] => Self::Events(EventsQuery {
                search: query.text("q"),
                from: query.text("from"),
                to: query.text("to"),
                audit: query.is_set("audit"),
                all: query.is_set("all"),
            }),
            ["deployments", name] => Self::Deployment { name: text(name) },
            ["deployments", name, "diff"] => Self::Diff {
                deployment: text(name),
                from: query.number("from"),
                to: query.number("to"),
            },
            ["deployments", deployment, "services", name] => Self::Service {
                deployment: text(deployment),
                name: text(name),
                page,
                only_ill: query.is_set("ill"),
            },
            ["deployments", deployment, "replicas", id] => Self::Replica {
                deployment: text(deployment),
                id: text(id),
            },
            _ => return None,
        })
    }
}

fn unescaped(part: &str) -> String {
    let uri = format!("/?part={}", part.replace('+', "%2B")).parse().ok();
    let read = uri.and_then(|uri| axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri).ok());
    let first = read.and_then(|read| read.0.into_iter().next());
    first.map_or_else(|| part.to_owned(), |(_, text)| text)
}

pub(super) fn of_deployment(name: &str) -> String {
    format!("/ui/deployments/{}", escaped(name))
}

pub(super) fn of_service(deployment: &str, name: &str) -> String {
    format!("{}/services/{}", of_deployment(deployment), escaped(name))
}

pub(super) fn of_replica(deployment: &str, id: &str) -> String {
    format!("{}/replicas/{}", of_deployment(deployment), escaped(id))
}

pub(super) fn of_node(id: u64) -> String {
    format!("/ui/nodes/{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_mean_pages() {
        let of = |text: &str| {
            let (path, query) = text.split_once('?').unwrap_or((text, ""));
            PageAddress::of(path, query)
        };
        assert_eq!(
            of("/ui/?q=%20shop&page=3"),
            Some(PageAddress::Overview {
                search: "shop".into(),
                page: 2
            })
        );
        assert_eq!(
            of(&of_replica("shop", "web-default-0")),
            Some(PageAddress::Replica {
                deployment: "shop".into(),
                id: "web-default-0".into()
            })
        );
        assert_eq!(
            of("/ui/deployments/shop/services/w%65b?ill=1&page=x"),
            Some(PageAddress::Service {
                deployment: "shop".into(),
                name: "web".into(),
                page: 0,
                only_ill: true
            })
        );
        assert_eq!(of(&of_node(7)), Some(PageAddress::Node { id: 7, page: 0 }));
        for nothing in [
            "/ui/x",
            "/ui/nodes/x",
            "/ui/nodes/1/2",
            "/api/v1/nodes",
            "/ui/deployments/a/b",
        ] {
            assert_eq!(of(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_part_cannot_become_two() {
        let hostile = "a/../b?c#<script>";
        let place = of_deployment(hostile);
        assert_eq!(
            PageAddress::of(&place, ""),
            Some(PageAddress::Deployment { name: hostile.into() })
        );
    }
}
