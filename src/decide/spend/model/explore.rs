//! All interleavings, breadth first: what is found first is among the shortest.

use std::{
    collections::HashSet,
    fmt,
    hash::{BuildHasherDefault, Hasher},
    rc::Rc,
};

use super::{
    gate::Gate,
    rules::{Dropped, Rule},
    steps::{Step, Steps},
    world::{Scenario, World, Wrong},
};

/// More states than any scenario here has: a scenario that grew must be cut, not waited for.
const MOST: usize = 2_000_000;

/// What an exploration came to.
#[derive(Debug)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// The first that must not be.
    pub found: Option<Found>,
}

/// Something that must not be, and how it comes about.
#[derive(Debug)]
pub struct Found {
    /// What.
    pub wrong: Wrong,
    /// How.
    pub steps: Vec<Step>,
    uses: i32,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:?} after {} steps, {} granted:",
            self.wrong,
            self.steps.len(),
            self.uses
        )?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:3}. {step}", number + 1)?;
        }
        Ok(())
    }
}

/// Explores a scenario without some rules, until something is found that must not be.
pub fn explore(scenario: &Scenario, dropped: &'static [Rule]) -> Explored {
    let dropped = Dropped(dropped);
    let (gate, grant) = Gate::new(scenario, dropped);
    let mut steps = Steps {
        scenario,
        dropped,
        gate,
    };
    let begin = Rc::new(scenario.begin(grant));
    let mut seen: HashSet<Rc<World>, Quick> = HashSet::default();
    seen.insert(begin.clone());
    let mut line: Vec<Reached> = vec![(begin, 0, None)];
    let mut place = 0;
    while place < line.len() {
        let world = line[place].0.clone();
        if let Some(wrong) = world.wrong {
            let found = Found {
                wrong,
                steps: back(&line, place),
                uses: scenario.uses,
            };
            return Explored {
                states: line.len(),
                found: Some(found),
            };
        }
        for (step, after) in steps.after(&world) {
            let after = Rc::new(after);
            if seen.insert(after.clone()) {
                line.push((after, place, Some(step)));
            }
        }
        assert!(line.len() < MOST, "too many states: {scenario:?}");
        place += 1;
    }
    Explored {
        states: line.len(),
        found: None,
    }
}

/// A state, the place of the one before it, and the step between them.
type Reached = (Rc<World>, usize, Option<Step>);

fn back(line: &[Reached], mut place: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some(step) = line[place].2 {
        steps.push(step);
        place = line[place].1;
    }
    steps.reverse();
    steps
}

/// Hashes in a few instructions: these builds are not optimised, and what is hashed is ours.
#[derive(Default)]
pub struct Mixer(u64);

/// Of maps whose keys are ours.
pub type Quick = BuildHasherDefault<Mixer>;

impl Mixer {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(u64::from(word));
    }

    fn write_u16(&mut self, word: u16) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_i64(&mut self, word: i64) {
        self.mix(word.cast_unsigned());
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
