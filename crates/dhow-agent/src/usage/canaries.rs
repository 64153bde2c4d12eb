//! What the balancer has counted of canaries, by service: each has several endpoints.

use std::collections::BTreeMap;

use dhow_core::ids::ServiceKey;
use dhow_core::rollout::Figures;
use dhow_core::usage::{CanaryCount, EndpointFigures, NodeUsage};

pub fn counted(figures: &[EndpointFigures]) -> Vec<CanaryCount> {
    let mut sums: BTreeMap<(ServiceKey, u32), Figures> = BTreeMap::new();
    for endpoint in figures {
        let (Some((service, _)), Some((number, counted))) = (endpoint.endpoint(), endpoint.canary) else {
            continue;
        };
        let sum = sums.entry((service, number)).or_default();
        *sum = sum.plus(counted);
    }
    let counts = sums.into_iter().map(|((service, number), figures)| CanaryCount {
        service,
        number,
        figures,
    });
    counts.take(NodeUsage::CANARIES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use dhow_core::rollout::Counted;

    use super::*;

    #[test]
    fn endpoints_of_one_service_are_counted_together() {
        let endpoint = |id: &str, number, requests| EndpointFigures {
            id: id.into(),
            canary: Some((
                number,
                Figures {
                    canary: Counted { requests, errors: 1 },
                    base: Counted::default(),
                },
            )),
            ..EndpointFigures::default()
        };
        let plain = EndpointFigures {
            id: "shop/db/pg".into(),
            ..EndpointFigures::default()
        };
        let all = [
            endpoint("shop/web/http", 2, 5),
            endpoint("shop/web/admin", 2, 3),
            plain,
        ];
        let counts = counted(&all);
        let [web] = &counts[..] else {
            panic!("{counts:?}");
        };
        assert_eq!(
            (web.number, web.figures.canary),
            (
                2,
                Counted {
                    requests: 8,
                    errors: 2
                }
            )
        );
    }
}
