//! `dhow image pull IMAGE`, with a bar where a person looks on.

use dhow_wire::Problem;
use dhow_wire::api::{ImagePullRequest, PullProgress, PullState};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::{Client, ClientError, Request};
use crate::exit::Exit;
use crate::output;

pub async fn pull(client: &Client, image: &str, json: bool) -> anyhow::Result<Exit> {
    let body = serde_json::to_value(ImagePullRequest { image: image.into() })?;
    let mut events = client
        .events(Request::post(&["images", "pull"]).json(body))
        .await?;
    let mut view = PullView::new(image);
    while let Some(event) = events.next().await? {
        match event.event.as_str() {
            "progress" => view.show(&decode(client, &event.data)?),
            "result" => {
                view.clear();
                let mut value: Value = decode(client, &event.data)?;
                super::print_name(client, &mut value, json)?;
                return Ok(Exit::Done);
            }
            "error" => {
                view.clear();
                let problem: Problem = decode(client, &event.data)?;
                return Err(ClientError::Problem(Box::new(problem)).into());
            }
            // A newer daemon may say more.
            _ => {}
        }
    }
    view.clear();
    let host = client.host().clone();
    let why = "it ended before the image was there; run it again, what has come is kept".into();
    Err(ClientError::Broke { host, why }.into())
}

fn decode<T: DeserializeOwned>(client: &Client, data: &str) -> Result<T, ClientError> {
    serde_json::from_str(data).map_err(|error| ClientError::Unreadable {
        host: client.host().clone(),
        why: error.to_string(),
    })
}

/// A bar, or a line for each state.
struct PullView<'a> {
    image: &'a str,
    bar: Option<ProgressBar>,
    said: Option<PullState>,
}

impl<'a> PullView<'a> {
    fn new(image: &'a str) -> Self {
        let bar = output::is_watched().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // A template that cannot be read would be a slip of ours; the default one shows the message too.
            let style = ProgressStyle::with_template(
                "{spinner} {msg} {wide_bar} {binary_bytes}/{binary_total_bytes}",
            )
            .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style);
            bar
        });
        Self {
            image,
            bar,
            said: None,
        }
    }

    fn show(&mut self, progress: &PullProgress) {
        let word = output::word(&progress.state);
        match &self.bar {
            Some(bar) => {
                bar.set_message(format!("{} {word}", output::visible(self.image)));
                if let Some(total) = progress.total_bytes {
                    bar.set_length(total);
                }
                bar.set_position(progress.done_bytes);
            }
            None if self.said != Some(progress.state) => output::note(&format!("{}: {word}", self.image)),
            None => {}
        }
        self.said = Some(progress.state);
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
