//! Progress as lines that stay: one for each change of a service.

use std::collections::BTreeMap;

use dhow_wire::api::Progress;

use super::text::words;

/// What was said last of each service.
#[derive(Debug, Default)]
pub struct Plain {
    said: BTreeMap<String, String>,
}

impl Plain {
    pub fn show(&mut self, progress: &Progress, say: &mut impl FnMut(String)) {
        for service in &progress.services {
            let text = words(service);
            if self.said.get(&service.name) != Some(&text) {
                say(format!("{}/{}: {text}", progress.deployment, service.name));
                self.said.insert(service.name.clone(), text);
            }
        }
    }
}
