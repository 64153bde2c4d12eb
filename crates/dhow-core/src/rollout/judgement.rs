//! Whether a canary fails more often than the version beside it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Requests to a canary from which on it is judged by them: of so many, five failures more than the version beside it
/// are hardly ever chance.
pub const JUDGED_FROM: u64 = 200;
/// How likely the canary's failures may be where both versions fail alike: below one in a thousand it is not chance.
const CHANCE_MIN: f64 = 0.001;
/// How much more of its requests, in percent, a canary must fail: less is found in many requests, and is no reason to go
/// back.
const MORE_PERCENT: u128 = 1;

/// Requests to one version, and those that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub requests: u64,
    pub errors: u64,
}

/// What the balancers of all nodes have counted since the canary began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    pub canary: Counted,
    /// Of the version beside it, in the same time.
    pub base: Counted,
}

/// What a canary was judged by, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    pub figures: Figures,
    pub verdict: Verdict,
}

/// What a judgement says of a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It fails more often than the version beside it.
    Worse,
    NotWorse,
    /// It got too few requests to find a difference, and was healthy.
    HealthAlone,
}

impl Counted {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            errors: self.errors.saturating_add(other.errors),
        }
    }
}

impl Figures {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            canary: self.canary.plus(other.canary),
            base: self.base.plus(other.base),
        }
    }
}

/// Judges by the figures alone, where they are enough. The test is that of two rates, one-sided and exact: if both
/// versions failed alike, each failure would hit the canary as likely as any request does. Worse is a canary with so many
/// of the failures that this has a chance below one in a thousand, and that fails at least one percent more of its
/// requests.
pub fn judge(figures: &Figures) -> Option<Judgement> {
    let Figures { canary, base } = *figures;
    if canary.requests < JUDGED_FROM {
        return None;
    }
    let verdict = match is_worse(canary, base) {
        true => Verdict::Worse,
        false => Verdict::NotWorse,
    };
    Some(Judgement {
        figures: *figures,
        verdict,
    })
}

/// Judges by what there is when the time is over: few requests can only show that the canary is worse, which takes more
/// of them to have failed. Where nobody called the version beside it, they show nothing.
pub fn judge_at_last(figures: &Figures) -> Judgement {
    let Figures { canary, base } = *figures;
    let verdict = match base.requests > 0 && is_worse(canary, base) {
        true => Verdict::Worse,
        false => Verdict::HealthAlone,
    };
    Judgement {
        figures: *figures,
        verdict,
    }
}

fn is_worse(canary: Counted, base: Counted) -> bool {
    fails_more(canary, base) && chance(canary, base) < CHANCE_MIN
}

/// Whether the canary's share of failures is above the other one's by so much. Where nobody called the other version,
/// nothing of it failed.
fn fails_more(canary: Counted, base: Counted) -> bool {
    let wide = |count: u64| u128::from(count.min(u64::from(u32::MAX)));
    let (requests, beside) = (wide(canary.requests).max(1), wide(base.requests).max(1));
    let (errors, errors_beside) = (wide(canary.errors), wide(base.errors));
    // errors / requests - errors_beside / beside >= 1 %, without fractions.
    let least = errors_beside * requests * 100 + MORE_PERCENT * requests * beside;
    errors * beside * 100 >= least
}

/// How likely it is that so many of all failures are the canary's, or more, where each request fails as likely as any
/// other: the upper tail of a binomial distribution.
fn chance(canary: Counted, base: Counted) -> f64 {
    let errors = canary.errors.min(canary.requests);
    let all = errors.saturating_add(base.errors.min(base.requests));
    if errors == 0 {
        return 1.0;
    }
    let requests = canary.requests.saturating_add(base.requests);
    let share = canary.requests as f64 / requests as f64;
    if base.requests == 0 {
        // There is nothing to compare with: any failure would be found to be chance.
        return 0.0;
    }
    // The first term in logarithms, the others from one to the next; beyond the most likely one they only get smaller.
    let mut term =
        ln_choose(all, errors) + errors as f64 * share.ln() + (all - errors) as f64 * (1.0 - share).ln();
    let (mut sum, mut count) = (0.0_f64, errors);
    loop {
        let added = term.exp();
        sum += added;
        let is_past_top = count as f64 > all as f64 * share;
        if count == all || (is_past_top && added < sum * 1e-12) || sum >= CHANCE_MIN {
            return sum;
        }
        term += ((all - count) as f64 / (count + 1) as f64).ln() + (share / (1.0 - share)).ln();
        count += 1;
    }
}

/// The logarithm of the number of ways to choose `k` of `n`.
fn ln_choose(n: u64, k: u64) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// By sum where that is short, else by Stirling's series, which is exact to twelve digits there.
fn ln_factorial(n: u64) -> f64 {
    if n < 64 {
        return (2..=n).map(|factor| (factor as f64).ln()).sum();
    }
    let n = n as f64;
    n * n.ln() - n + 0.5 * (std::f64::consts::TAU * n).ln() + 1.0 / (12.0 * n) - 1.0 / (360.0 * n * n * n)
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, errors } = self;
        let tenths = match requests {
            0 => 0,
            requests => u128::from(*errors) * 1_000 / u128::from(*requests),
        };
        write!(
            f,
            "{errors} of {requests} requests ({}.{} %)",
            tenths / 10,
            tenths % 10
        )
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { canary, base } = self.figures;
        match self.verdict {
            Verdict::Worse => write!(
                f,
                "the canary failed {canary}, the version beside it {base}: that is more, and no chance"
            ),
            Verdict::NotWorse => write!(
                f,
                "the canary failed {canary}, the version beside it {base}: that is no difference that counts"
            ),
            Verdict::HealthAlone if canary.requests == 0 => {
                f.write_str("the canary was healthy and got no requests: judged by its health alone")
            }
            Verdict::HealthAlone => write!(
                f,
                "the canary was healthy and failed {canary}, too few to show a difference: judged by its health alone"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
