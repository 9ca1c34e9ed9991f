//! With every rule in place nothing goes wrong, whatever comes between.

use super::{
    explore::explore,
    target::{Foreign, Place},
    world::Scenario,
    writes::{Act, Write},
};

const PLACES: [Place; 7] = [
    Place::Image,
    Place::Restart,
    Place::Label,
    Place::Status,
    Place::Scale,
    Place::Data,
    Place::Numbered,
];

fn nothing_goes_wrong(scenario: &Scenario) {
    let explored = explore(scenario, &[]);
    eprintln!("{:?}: {} states", scenario.place, explored.states);
    if let Some(found) = explored.found {
        panic!("{scenario:?}: {found}");
    }
}

#[test]
fn others_revert_and_write_beside_between_any_two_steps() {
    for place in PLACES {
        nothing_goes_wrong(&Scenario {
            foreign: vec![Foreign::Revert, Foreign::Note],
            foreigners: 2,
            ..Scenario::of(place)
        });
    }
    nothing_goes_wrong(&Scenario {
        foreign: vec![
            Foreign::Revert,
            Foreign::RevertAndSwap,
            Foreign::Elsewhere,
            Foreign::Seen,
        ],
        foreigners: 2,
        ..Scenario::of(Place::Image)
    });
}

#[test]
fn a_list_around_the_change_that_is_turned_over_hides_no_effect() {
    nothing_goes_wrong(&Scenario {
        foreign: vec![Foreign::RevertAndSwap],
        foreigners: 1,
        ..Scenario::of(Place::Image)
    });
}

#[test]
fn the_target_is_deleted_and_created_again() {
    for place in [Place::Image, Place::Data] {
        nothing_goes_wrong(&Scenario {
            foreign: vec![Foreign::Replace, Foreign::Note],
            foreigners: 2,
            ..Scenario::of(place)
        });
    }
}

#[test]
fn replies_and_answers_are_lost_and_requests_given_up() {
    for place in [Place::Image, Place::Label] {
        nothing_goes_wrong(&Scenario {
            foreign: vec![Foreign::Revert],
            foreigners: 1,
            lost_replies: 1,
            lost_answers: 1,
            abandoned: 1,
            ..Scenario::of(place)
        });
    }
}

#[test]
fn of_two_uses_one_is_counted_and_its_answer_lost() {
    nothing_goes_wrong(&Scenario {
        uses: 2,
        writes: vec![Write::SET; 3],
        attempts: 1,
        foreign: vec![Foreign::Revert],
        foreigners: 2,
        lost_replies: 1,
        lost_answers: 1,
        ..Scenario::of(Place::Label)
    });
}

#[test]
fn first_attempts_show_what_the_api_server_has_cached() {
    for place in [Place::Image, Place::Label] {
        nothing_goes_wrong(&Scenario {
            foreign: vec![Foreign::Revert, Foreign::Note],
            foreigners: 2,
            old_objects: true,
            ..Scenario::of(place)
        });
    }
}

#[test]
fn the_history_is_gone_for_the_witness() {
    for place in [Place::Image, Place::Data] {
        nothing_goes_wrong(&Scenario {
            foreign: vec![Foreign::Revert, Foreign::Note],
            foreigners: 2,
            compactions: 1,
            ..Scenario::of(place)
        });
    }
}

#[test]
fn a_grant_of_three_uses_comes_to_three_effects_at_most() {
    for place in [Place::Image, Place::Label] {
        nothing_goes_wrong(&Scenario {
            uses: 3,
            writes: vec![Write::SET; 4],
            attempts: 1,
            foreign: vec![Foreign::Revert],
            foreigners: 3,
            ..Scenario::of(place)
        });
    }
}

#[test]
fn two_uses_and_a_history_that_goes_away() {
    nothing_goes_wrong(&Scenario {
        uses: 2,
        writes: vec![Write::SET; 3],
        attempts: 1,
        foreign: vec![Foreign::Revert, Foreign::Note],
        foreigners: 2,
        compactions: 1,
        ..Scenario::of(Place::Label)
    });
}

#[test]
fn the_grant_is_revoked_goes_stale_and_comes_back_as_a_copy() {
    for place in [Place::Image, Place::Label] {
        nothing_goes_wrong(&Scenario {
            attempts: 2,
            foreign: vec![Foreign::Revert],
            foreigners: 1,
            revoked: 1,
            stale: 1,
            restored: 1,
            ..Scenario::of(place)
        });
    }
}

#[test]
fn uses_are_settled_while_retries_go_on() {
    for place in [Place::Image, Place::Label] {
        nothing_goes_wrong(&Scenario {
            attempts: 2,
            foreign: vec![Foreign::Revert, Foreign::Note],
            foreigners: 1,
            // The last moments of the window, of the first request's life, of the second one's, and what the controller waits for.
            times: vec![0, 33, 55, 67, 82, 90],
            replicas_behind: 2,
            controller: true,
            ..Scenario::of(place)
        });
    }
}

#[test]
fn the_grant_s_time_runs_out_over_an_open_use() {
    nothing_goes_wrong(&Scenario {
        attempts: 2,
        times: vec![0, 6, 90],
        not_after: 5,
        stale: 1,
        revoked: 1,
        controller: true,
        ..Scenario::of(Place::Image)
    });
}

#[test]
fn deletions_call_several_times_and_their_grace_never_falls_below_what_was_counted() {
    let delete = |grace| {
        Write::of(Act::Delete {
            grace,
            orphan: false,
        })
    };
    for writes in [
        vec![delete(0), delete(0)],
        vec![delete(30), delete(60)],
        vec![delete(30), delete(60), delete(30)],
    ] {
        nothing_goes_wrong(&Scenario {
            writes,
            attempts: 2,
            foreign: vec![Foreign::Note, Foreign::Replace],
            foreigners: 1,
            ..Scenario::of(Place::Image)
        });
    }
}

#[test]
fn a_deletion_with_two_uses_leaves_no_less_time_than_they_do() {
    let delete = |grace| {
        Write::of(Act::Delete {
            grace,
            orphan: false,
        })
    };
    nothing_goes_wrong(&Scenario {
        uses: 2,
        writes: vec![delete(30), delete(60), delete(45)],
        attempts: 2,
        ..Scenario::of(Place::Image)
    });
}

#[test]
fn creations_and_connections_never_share_a_use() {
    for act in [Act::Create, Act::Exec] {
        nothing_goes_wrong(&Scenario {
            writes: vec![Write::of(act); 3],
            foreign: vec![Foreign::Remove],
            foreigners: 2,
            lost_answers: 1,
            lost_replies: 1,
            abandoned: 1,
            ..Scenario::of(Place::Data)
        });
    }
}

#[test]
fn a_conflict_ends_a_write_with_a_resource_version() {
    nothing_goes_wrong(&Scenario {
        writes: vec![Write::SET.once(), Write::SET],
        foreign: vec![Foreign::Revert, Foreign::Note],
        foreigners: 2,
        ..Scenario::of(Place::Label)
    });
}
