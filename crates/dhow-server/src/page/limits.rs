//! Every limit of the page, with its arithmetic.

use std::time::Duration;

/// Rows of a table on one page: what people scroll through, at about 600 bytes each.
pub(super) const ROWS: usize = 100;

/// Replicas that are shown of each side while a rollout goes on.
pub(super) const SIDE_MAX: usize = 60;

/// Things that are not well and are named one by one.
pub(super) const TROUBLES_MAX: usize = 30;

/// Sessions of this server, at some 200 bytes each; those of one token among them. The oldest goes.
pub(super) const SESSIONS_MAX: usize = 1_024;
pub(super) const SESSIONS_OF_TOKEN_MAX: usize = 32;

/// A session is good for a working day.
pub(super) const SESSION_SECS: i64 = 12 * 3_600;

/// Streams of open pages on this server: at one rendering a second and a millisecond each a quarter of a core.
pub(super) const STREAMS_MAX: usize = 256;

/// Messages of a stream that wait for a slow browser: each is a block of a page, of at most some 100 KiB.
pub(super) const STREAM_WAITING_MAX: usize = 8;

/// A page is made anew at most this often, however much happens.
pub(super) const RENDER_EVERY: Duration = Duration::from_secs(1);

/// The pause after a rendering is this many times its cost, so that an open page costs a four hundredth of a core.
pub(super) const RENDER_SHARE: u32 = 400;

/// The longest of these pauses.
pub(super) const RENDER_PAUSE_MAX: Duration = Duration::from_secs(30);

/// What is measured on nodes changes without a change of the state.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A look at the whole state is shared by all pages, and repeated after this many times its cost at the earliest.
pub(super) const GLANCE_SHARE: u32 = 40;

/// Blocks of a page that a browser says to have.
pub(super) const HAVE_MAX: usize = 16;

/// Lines of a log that a page begins with.
pub(super) const LOG_TAIL: usize = 200;

/// Lines that go in one message, and characters of each: the rest is cut off.
pub(super) const LOG_LINES_AT_ONCE: usize = 64;
pub(super) const LOG_LINE_CHARS_MAX: usize = 4_000;

/// A node that has not answered with its lines by then is left to the stream.
pub(super) const LOG_TAIL_WAIT: Duration = Duration::from_secs(1);

/// Events that a search shows, and that are read from disk at a time.
pub(super) const EVENTS_SHOWN: usize = 200;
pub(super) const EVENTS_AT_ONCE: usize = 4_096;

/// Events of one replica on its page.
pub(super) const REPLICA_EVENTS: usize = 40;

/// The longest text of a search.
pub(super) const SEARCH_CHARS_MAX: usize = 200;

/// The longest body of a form: a deployment file of 1 MiB, each byte of which takes three where it has to be escaped.
pub(super) const FORM_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The longest answer of the API that a page reads: the plan of a hundred thousand replicas.
pub(super) const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Placements of a plan that are shown.
pub(super) const PLACEMENTS_MAX: usize = 100;
