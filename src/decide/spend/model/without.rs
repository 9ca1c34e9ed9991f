//! Without one rule, something goes wrong that does not with it. Rules without which nothing does say why.

use super::{
    explore::explore,
    rules::Rule,
    target::{Foreign, Place},
    world::{Scenario, Wrong},
    writes::{Act, Stray, Write},
};
use crate::decide::spend::MAX_WITNESS_MOVES;

/// The scenario goes well, and without these rules it comes to this.
fn needed(rules: &'static [Rule], scenario: &Scenario, wrong: Wrong) {
    let all = explore(scenario, &[]);
    if let Some(found) = all.found {
        panic!("with every rule: {found}");
    }
    let found = explore(scenario, rules).found.expect("nothing goes wrong");
    eprintln!("without {rules:?}: {found}");
    assert_eq!(found.wrong, wrong, "{found}");
}

/// Without these rules the scenario goes well all the same.
fn spared(rules: &'static [Rule], scenario: &Scenario) {
    let explored = explore(scenario, rules);
    eprintln!("without {rules:?}: {} states", explored.states);
    if let Some(found) = explored.found {
        panic!("without {rules:?}: {found}");
    }
}

fn reverted(place: Place) -> Scenario {
    Scenario {
        attempts: 1,
        foreign: vec![Foreign::Revert],
        foreigners: 1,
        ..Scenario::of(place)
    }
}

fn beside(stray: Stray) -> Scenario {
    Scenario {
        writes: vec![Write::SET, Write::SET.stray(stray)],
        attempts: 1,
        ..Scenario::of(Place::Image)
    }
}

const fn delete(grace: u8) -> Write {
    Write::of(Act::Delete {
        grace,
        orphan: false,
    })
}

fn deleted(writes: Vec<Write>) -> Scenario {
    Scenario {
        writes,
        attempts: 1,
        ..Scenario::of(Place::Image)
    }
}

fn slow() -> Scenario {
    Scenario {
        attempts: 1,
        times: vec![0, 33, 55, 67, 80, 90],
        controller: true,
        ..Scenario::of(Place::Label)
    }
}

#[test]
fn without_the_exact_revision_of_the_grant_two_replicas_use_it_twice() {
    needed(
        &[Rule::ExactRevisionOfTheGrant],
        &reverted(Place::Image),
        Wrong::DoubleEffect,
    );
}

#[test]
fn a_verdict_that_outlives_a_conflict_uses_the_grant_twice() {
    needed(
        &[Rule::JudgedAgainAfterConflict],
        &reverted(Place::Image),
        Wrong::DoubleEffect,
    );
}

#[test]
fn without_the_same_answer_a_review_sent_again_is_denied() {
    let scenario = Scenario {
        writes: vec![Write::of(Act::Create)],
        lost_answers: 1,
        ..Scenario::of(Place::Data)
    };
    needed(&[Rule::SameReview], &scenario, Wrong::AnswerChanged);
}

#[test]
fn without_a_window_a_retry_lands_after_its_use_was_settled() {
    needed(&[Rule::Window], &slow(), Wrong::FalseRecord);
}

#[test]
fn without_the_requester_a_use_serves_somebody_else() {
    for stray in [Stray::OnBehalf, Stray::Account] {
        needed(&[Rule::Requester], &beside(stray), Wrong::NotApproved);
    }
}

#[test]
fn without_the_target_s_uid_its_successor_is_written_too() {
    let replaced = |scenario| Scenario {
        foreign: vec![Foreign::Replace],
        foreigners: 1,
        ..scenario
    };
    needed(
        &[Rule::TargetUid],
        &replaced(reverted(Place::Image)),
        Wrong::DoubleEffect,
    );
    let twice = replaced(deleted(vec![delete(0), delete(0)]));
    needed(
        &[Rule::TargetUid],
        &Scenario {
            attempts: 2,
            ..twice
        },
        Wrong::DoubleEffect,
    );
}

#[test]
fn without_subresource_version_or_options_a_use_serves_another_write() {
    needed(
        &[Rule::Subresource],
        &beside(Stray::Subresource),
        Wrong::NotApproved,
    );
    needed(
        &[Rule::Version],
        &beside(Stray::Version),
        Wrong::NotApproved,
    );
    needed(
        &[Rule::Options],
        &beside(Stray::Manager),
        Wrong::NotApproved,
    );
}

#[test]
fn without_the_whole_change_two_values_of_a_free_field_are_written() {
    let scenario = Scenario {
        writes: vec![Write::SET, Write::of(Act::Set(2))],
        attempts: 1,
        ..Scenario::of(Place::Restart)
    };
    needed(&[Rule::WholeChange], &scenario, Wrong::DoubleEffect);
}

#[test]
fn without_the_same_revision_a_reverted_change_is_made_again() {
    needed(
        &[Rule::SameRevision],
        &reverted(Place::Data),
        Wrong::DoubleEffect,
    );
}

#[test]
fn a_generation_that_the_write_does_not_raise_proves_nothing() {
    for place in [Place::Label, Place::Status, Place::Numbered] {
        needed(
            &[Rule::RaisesGeneration],
            &reverted(place),
            Wrong::DoubleEffect,
        );
    }
}

/// Only a review that shows a generation can show a raised one, so each of the two rules alone keeps kinds without a generation out.
#[test]
fn of_kinds_without_a_generation_either_rule_alone_is_enough() {
    let both = &[Rule::RaisesGeneration, Rule::HasGeneration];
    for place in [Place::Data, Place::Scale] {
        spared(&[Rule::RaisesGeneration], &reverted(place));
        spared(&[Rule::HasGeneration], &reverted(place));
        needed(both, &reverted(place), Wrong::DoubleEffect);
    }
}

#[test]
fn a_witness_that_does_not_look_lets_a_reverted_change_be_made_again() {
    for place in [Place::Image, Place::Label, Place::Scale] {
        needed(&[Rule::WitnessLooks], &reverted(place), Wrong::DoubleEffect);
    }
}

#[test]
fn a_witness_that_cannot_see_and_vouches_lets_a_reverted_change_be_made_again() {
    let scenario = Scenario {
        compactions: 1,
        ..reverted(Place::Label)
    };
    needed(&[Rule::WitnessSeesAll], &scenario, Wrong::DoubleEffect);
}

/// The cap keeps a write on a busy object from calling for 34 s; each move is proven by itself, so more of them harm nobody.
#[test]
fn more_than_ten_moves_cost_time_and_nothing_else() {
    let scenario = Scenario {
        foreign: vec![Foreign::Revert, Foreign::Note],
        foreigners: 2,
        moves: MAX_WITNESS_MOVES,
        ..Scenario::of(Place::Label)
    };
    spared(&[Rule::TenMoves], &scenario);
}

#[test]
fn a_shorter_grace_than_the_use_s_is_another_effect() {
    needed(
        &[Rule::Grace],
        &deleted(vec![delete(30), delete(60)]),
        Wrong::DoubleEffect,
    );
}

#[test]
fn another_propagation_is_another_deletion() {
    let orphaning = Write::of(Act::Delete {
        grace: 30,
        orphan: true,
    });
    let scenario = deleted(vec![delete(30), orphaning.stray(Stray::Manager)]);
    needed(&[Rule::Options], &scenario, Wrong::NotApproved);
}

/// The API server chooses another uid in each attempt to create, so a creation could never be taken for the one of the use.
#[test]
fn creations_are_kept_apart_by_the_uid_as_well() {
    let scenario = Scenario {
        writes: vec![Write::of(Act::Create); 2],
        foreign: vec![Foreign::Remove],
        foreigners: 1,
        ..Scenario::of(Place::Data)
    };
    spared(&[Rule::CreateNever], &scenario);
    spared(&[Rule::CreatedUid], &scenario);
    needed(
        &[Rule::CreateNever, Rule::CreatedUid],
        &scenario,
        Wrong::DoubleEffect,
    );
}

#[test]
fn a_connection_that_serves_again_runs_twice() {
    let scenario = Scenario {
        writes: vec![Write::of(Act::Exec); 2],
        ..Scenario::of(Place::Data)
    };
    needed(&[Rule::ConnectNever], &scenario, Wrong::DoubleEffect);
}

#[test]
fn an_open_use_of_a_grant_that_was_revoked_or_went_stale_would_serve_again() {
    let revoked = Scenario {
        attempts: 1,
        revoked: 1,
        ..Scenario::of(Place::Image)
    };
    let stale = Scenario {
        stale: 1,
        revoked: 0,
        ..revoked.clone()
    };
    needed(&[Rule::NotRevoked], &revoked, Wrong::AfterTheEnd);
    needed(&[Rule::NotStale], &stale, Wrong::AfterTheEnd);
    needed(&[Rule::ReadLive], &revoked, Wrong::AfterTheEnd);
    needed(&[Rule::ReadLive], &stale, Wrong::AfterTheEnd);
}

/// Each open use vouches for every revision since its own, and an older one for more of them: taking the oldest first, and the next when it
/// is gone, admits no second effect. The rule saves looks, and uses that a later one has replaced.
#[test]
fn older_open_uses_would_do_no_harm() {
    let scenario = Scenario {
        uses: 2,
        writes: vec![Write::SET; 3],
        attempts: 1,
        foreign: vec![Foreign::Revert, Foreign::Note],
        foreigners: 2,
        compactions: 1,
        ..Scenario::of(Place::Label)
    };
    spared(&[Rule::NewestOnly], &scenario);
}

/// No use is settled within its window, so a settled one could not serve again; without both rules it would.
#[test]
fn a_settled_use_is_kept_out_by_the_window_as_well() {
    spared(&[Rule::OpenOnly], &slow());
    needed(&[Rule::OpenOnly, Rule::Window], &slow(), Wrong::FalseRecord);
}

#[test]
fn a_use_that_is_settled_early_is_recorded_wrongly() {
    needed(&[Rule::SettledLate], &slow(), Wrong::FalseRecord);
}

#[test]
fn an_end_written_over_an_open_use_would_keep_the_grant_from_going_stale() {
    let scenario = Scenario {
        attempts: 1,
        times: vec![0, 6],
        not_after: 5,
        stale: 1,
        controller: true,
        ..Scenario::of(Place::Image)
    };
    needed(&[Rule::EndWaitsForOpenUses], &scenario, Wrong::AfterTheEnd);
}

#[test]
fn without_both_references_a_restored_copy_is_used_once_more() {
    let scenario = Scenario {
        restored: 1,
        ..reverted(Place::Image)
    };
    needed(&[Rule::BothReferences], &scenario, Wrong::DoubleEffect);
}
