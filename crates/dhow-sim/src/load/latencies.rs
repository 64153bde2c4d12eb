//! How long things took.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Takes of any number of threads; a sample is four bytes, so that a million are 4 MiB.
#[derive(Debug, Default)]
pub struct Latencies {
    micros: Mutex<Vec<u32>>,
}

/// What a number of samples says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    pub count: usize,
    pub p50: Duration,
    pub p95: Duration,
    pub p99: Duration,
    pub max: Duration,
}

impl Latencies {
    pub fn add(&self, took: Duration) {
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        self.samples().push(micros);
    }

    /// What has gathered, in microseconds; it begins anew.
    pub fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.samples())
    }

    fn samples(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.micros.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Quantiles {
    pub fn of(micros: Vec<u32>) -> Self {
        let mut samples = micros;
        samples.sort_unstable();
        let at = |per_mille: usize| {
            let place = (samples.len().saturating_sub(1)) * per_mille / 1_000;
            Duration::from_micros(samples.get(place).copied().unwrap_or_default().into())
        };
        Self {
            count: samples.len(),
            p50: at(500),
            p95: at(950),
            p99: at(990),
            max: at(1_000),
        }
    }

    /// Of times that the script took itself.
    pub fn of_times(times: &[Duration]) -> Self {
        let micros = |took: &Duration| u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        Self::of(times.iter().map(micros).collect())
    }
}

impl std::fmt::Display for Quantiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |took: Duration| took.as_secs_f64() * 1_000.0;
        write!(
            f,
            "{} times, p50 {:.1} ms, p95 {:.1} ms, p99 {:.1} ms, longest {:.1} ms",
            self.count,
            ms(self.p50),
            ms(self.p95),
            ms(self.p99),
            ms(self.max)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_hundred() {
        let latencies = Latencies::default();
        assert_eq!(Quantiles::of(latencies.take()), Quantiles::default());
        (1..=101).for_each(|ms| latencies.add(Duration::from_millis(ms)));
        let told = Quantiles::of(latencies.take());
        let ms = [told.p50, told.p95, told.p99, told.max].map(|took| took.as_millis());
        assert_eq!((told.count, ms), (101, [51, 96, 100, 101]));
    }
}
