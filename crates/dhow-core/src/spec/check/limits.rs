//! The named limits of a spec. Each is far above any sensible use; they keep a slip of the keyboard from
//! becoming a million containers.

/// Replicas of one service: C1M scale, a hundred on each of 10,000 nodes.
pub const SERVICE_REPLICAS_MAX: u32 = 1_000_000;

/// The kernel refuses to start a program with a longer argument or environment entry (`MAX_ARG_STRLEN`: 32
/// pages of 4 KiB), its closing zero byte included.
pub const EXEC_TEXT_MAX_BYTES: usize = 128 * 1024 - 1;

/// All arguments and the environment together: the kernel allows a quarter of the stack limit, which is
/// 8 MiB by default, and each entry costs a pointer of 8 bytes too.
pub const EXEC_TOTAL_MAX_BYTES: usize = 2 * 1024 * 1024;

/// Less memory than this does not even hold the pages that the kernel charges for starting a program.
pub const MEMORY_MIN_BYTES: u64 = 1024 * 1024;

/// More memory than any machine has: 64 TiB.
pub const MEMORY_MAX_BYTES: u64 = 64 << 40;

/// Processes and threads of one replica: the kernel's own ceiling on 64-bit (`PID_MAX_LIMIT`).
pub const PIDS_MAX: u32 = 4 * 1024 * 1024;

/// A year: no grace, delay or deadline of a service is longer.
pub const SPAN_MAX_MS: u64 = 366 * 24 * 3600 * 1000;

/// A label's key, as long as a DNS name.
pub const LABEL_KEY_MAX_BYTES: usize = 253;

/// A label's value: room for a long rule of a proxy or a small document, not for a file. Labels travel with
/// every registration of a node.
pub const LABEL_VALUE_MAX_BYTES: usize = 4096;

/// A file name, a volume's name and the like.
pub const NAME_MAX_BYTES: usize = 63;

/// The kernel's longest path, its closing zero byte included.
pub const PATH_MAX_BYTES: usize = 4095;

/// A repository with its registry, as the distribution specification advises.
pub const IMAGE_NAME_MAX_BYTES: usize = 255;

/// The configs of one deployment together: they travel in one entry of the log, and a node writes them for each replica.
pub const CONFIG_BYTES_MAX: u64 = 1024 * 1024;

/// Ended runs of a schedule that are kept with their logs: a day and a night of a run each quarter of an hour.
pub const KEPT_RUNS_MAX: u32 = 100;

/// Steps before a program: more belong into a script.
pub const INIT_STEPS_MAX: usize = 16;

/// Configs of a deployment, and files of a service: each is a name in every spec that a node is told.
pub const CONFIGS_MAX: usize = 1_000;
