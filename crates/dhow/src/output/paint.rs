//! The few colours that are used.

/// What to paint a word with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "31",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Blue => "34",
            Self::Magenta => "35",
            Self::Cyan => "36",
        }
    }
}

/// Paints, or leaves words as they are.
#[derive(Clone, Copy, Debug)]
pub struct Painter {
    is_on: bool,
}

impl Painter {
    pub fn new(is_on: bool) -> Self {
        Self { is_on }
    }

    pub fn apply(self, text: &str, paint: Paint) -> String {
        if !self.is_on || paint == Paint::Plain {
            return text.into();
        }
        format!("\u{1b}[{}m{text}\u{1b}[0m", paint.code())
    }
}
