//! The settings that a flag or a variable can give, besides the file.

/// One of them. The variable and the flag win over the file, the flag over the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    DataDir,
    Socket,
    ApiAddr,
    ClusterKeyFile,
    LogLevel,
    LogFormat,
}

impl Setting {
    pub const ALL: [Self; 6] = [
        Self::DataDir,
        Self::Socket,
        Self::ApiAddr,
        Self::ClusterKeyFile,
        Self::LogLevel,
        Self::LogFormat,
    ];

    /// Its place in the file.
    pub fn key(self) -> &'static str {
        match self {
            Self::DataDir => "data_dir",
            Self::Socket => "socket",
            Self::ApiAddr => "api_addr",
            Self::ClusterKeyFile => "cluster_key_file",
            Self::LogLevel => "log.level",
            Self::LogFormat => "log.format",
        }
    }

    pub fn variable(self) -> &'static str {
        match self {
            Self::DataDir => "DHOW_DATA_DIR",
            Self::Socket => "DHOW_SOCKET",
            Self::ApiAddr => "DHOW_API_ADDR",
            Self::ClusterKeyFile => "DHOW_CLUSTER_KEY_FILE",
            Self::LogLevel => "DHOW_LOG_LEVEL",
            Self::LogFormat => "DHOW_LOG_FORMAT",
        }
    }

    pub fn flag(self) -> &'static str {
        match self {
            Self::DataDir => "--data-dir",
            Self::Socket => "--socket",
            Self::ApiAddr => "--api-addr",
            Self::ClusterKeyFile => "--cluster-key-file",
            Self::LogLevel => "--log-level",
            Self::LogFormat => "--log-format",
        }
    }
}
