//! Extents, points and views: the published worked examples, and what holds of every view.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use proptest::prelude::*;
use torchlift_schema::extent::{Extent, Range, Slice, View, ViewError};

fn extent<const N: usize>(dims: [(&str, usize); N]) -> Extent {
    Extent::of(dims).unwrap()
}

fn view<const N: usize>(dims: [(&str, usize); N]) -> View {
    View::from(&extent(dims))
}

fn step(range: impl Into<Range>, step: usize) -> Range {
    range.into().step(step.try_into().unwrap())
}

fn ranks(view: &View) -> Vec<usize> {
    view.iter().map(|(_, rank)| rank).collect()
}

fn groups(view: &View, dim: &str) -> Vec<View> {
    view.group_by(dim).unwrap().collect()
}

#[test]
fn two_hosts_of_two_are_two_rows() {
    let whole = extent([("host", 2), ("gpu", 2)]);
    let rows = groups(&View::from(&whole), "gpu");
    assert_eq!(rows.iter().map(ranks).collect::<Vec<_>>(), [[0, 1], [2, 3]]);
    assert_eq!(rows.iter().map(|row| row.slice().offset()).collect::<Vec<_>>(), [0, 2]);
    let global = rows[1].get(1).unwrap();
    assert_eq!((global, whole.point_of_rank(global).unwrap().to_string().as_str()), (3, "host=1/2,gpu=1/2"));
}

#[test]
fn two_zones_of_two_hosts_of_four_are_four_rows() {
    let whole = extent([("zone", 2), ("host", 2), ("gpu", 4)]);
    let rows = groups(&View::from(&whole), "gpu");
    assert_eq!(rows.iter().map(|row| row.slice().offset()).collect::<Vec<_>>(), [0, 4, 8, 12]);
    let point = whole.point_of_rank(rows[2].get(3).unwrap()).unwrap();
    assert_eq!((point.rank(), point.coords()), (11, &[1, 0, 3][..]));
    assert_eq!((point.get("zone"), point.get("gpu"), point.get("rack")), (Some(1), Some(3), None));
}

#[test]
fn a_group_keeps_the_dimension_and_those_behind_it() {
    let whole = view([("zone", 4), ("host", 2), ("gpu", 8)]);
    let by_host = groups(&whole, "host");
    assert_eq!(by_host.iter().map(|group| group.slice().offset()).collect::<Vec<_>>(), [0, 16, 32, 48]);
    assert!(by_host.iter().all(|group| group.extent() == extent([("host", 2), ("gpu", 8)])));
    assert_eq!(groups(&whole, "gpu").len(), 8);
    assert_eq!(groups(&whole, "zone"), [whole]);
}

#[test]
fn one_host_of_four_is_one_row_and_one_dimension_alone_is_itself() {
    let rows = groups(&view([("host", 1), ("gpu", 4)]), "gpu");
    assert_eq!(rows.iter().map(ranks).collect::<Vec<_>>(), [[0, 1, 2, 3]]);
    // The published split refused a single dimension; there is nothing wrong with it.
    assert_eq!(groups(&view([("gpu", 4)]), "gpu"), [view([("gpu", 4)])]);
}

#[test]
fn a_local_rank_of_a_strided_view_is_no_distance_from_its_offset() {
    let strided = view([("x", 4), ("y", 4)]).range("y", step(.., 2)).unwrap();
    assert_eq!((strided.slice().sizes(), strided.slice().strides()), (&[4, 2][..], &[4, 2][..]));
    assert_eq!(ranks(&strided), [0, 2, 4, 6, 8, 10, 12, 14]);
    assert_eq!(strided.get(3), Some(6), "the published rule said 3");
    assert_eq!((strided.local(6), strided.local(3), strided.local(16)), (Some(3), None, None));
    assert!(!strided.slice().is_contiguous());
}

#[test]
fn ranges_of_two_dimensions_cut_a_corner() {
    let corner = view([("x", 4), ("y", 4)]).range("x", 1).unwrap().range("y", 2..).unwrap();
    assert_eq!(
        (corner.slice().offset(), corner.slice().sizes(), corner.slice().strides()),
        (6, &[1, 2][..], &[4, 1][..])
    );
    assert_eq!(ranks(&corner), [6, 7]);
    assert_eq!(corner.to_string(), "6+x=1/4,y=2/1");
}

#[test]
fn ranges_of_ranges_go_on_from_where_they_are() {
    let view = view([("x", 10), ("y", 2)]).range("x", step(.., 2)).unwrap();
    let view = view.range("x", 2..).unwrap().range("y", 1).unwrap();
    assert_eq!(ranks(&view), [9, 13, 17]);
}

#[test]
fn three_strided_dimensions_keep_their_order() {
    let view = view([("replicas", 4), ("hosts", 4), ("gpus", 4)]);
    let view = view.range("replicas", step(0..4, 3)).unwrap().range("hosts", step(1..4, 2)).unwrap();
    let view = view.range("gpus", step(.., 2)).unwrap();
    assert_eq!(ranks(&view), [4, 6, 12, 14, 52, 54, 60, 62]);
    for (local, global) in ranks(&view).into_iter().enumerate() {
        assert_eq!((view.get(local), view.local(global)), (Some(global), Some(local)));
    }
}

#[test]
fn one_view_a_rank_keeps_all_dimensions() {
    let whole = extent([("region", 2), ("host", 4)]);
    let views: Vec<View> = View::from(&whole).ranks().collect();
    assert_eq!(views.len(), 8);
    let slice = views[5].slice();
    assert_eq!((slice.offset(), slice.sizes(), slice.strides()), (5, &[1, 1][..], &[4, 1][..]));
    assert_eq!(whole.point_of_rank(views[5].get(0).unwrap()).unwrap().to_string(), "region=1/2,host=1/4");
}

#[test]
fn an_extent_without_dimensions_has_one_rank_and_one_with_a_size_of_0_none() {
    let none = Extent::of::<&str>([]).unwrap();
    assert_eq!((none.num_ranks(), none.to_string().as_str(), none.points().count()), (1, "{}", 1));
    assert_eq!(ranks(&View::from(&none)), [0]);
    let empty = extent([("x", 0), ("y", (1 << 53) - 1)]);
    assert_eq!((empty.num_ranks(), empty.points().count()), (0, 0));
    let empty = View::from(&empty);
    assert_eq!((empty.get(0), empty.local(0), ranks(&empty).len()), (None, None, 0));
    assert_eq!(groups(&empty, "y").len(), 0);
}

#[test]
fn extents_and_points_are_told_in_the_published_form() {
    let whole = extent([("x", 4), ("y", 5)]);
    assert_eq!(whole.to_string(), "{'x': 4, 'y': 5}");
    assert_eq!(whole.point(vec![1, 2]).unwrap().to_string(), "x=1/4,y=2/5");
    assert_eq!(whole.points().map(|point| point.rank()).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    assert_eq!((whole.size("y"), whole.size("z"), whole.position("y")), (Some(5), None, Some(1)));
}

#[test]
fn what_is_no_extent_or_point_is_refused_with_its_reason() {
    let said = |labels: &[&str], sizes: &[usize]| {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Extent::new(labels, sizes.to_vec()).unwrap_err().to_string()
    };
    assert_eq!(said(&["x"], &[1, 2]), "1 names for 2 dimensions");
    assert_eq!(said(&["x", "x"], &[1, 2]), "two dimensions are called `x`");
    assert_eq!(said(&[""], &[1]), "a dimension has an empty name");
    assert_eq!(said(&["x", "y"], &[1 << 40, 1 << 40]), "more than 2^53 - 1 ranks");
    let whole = extent([("x", 4), ("y", 5)]);
    assert_eq!(whole.point_of_rank(20).unwrap_err().to_string(), "there is no rank 20 among 20");
    assert_eq!(whole.point(vec![1]).unwrap_err().to_string(), "1 coordinates for 2 dimensions");
    assert_eq!(whole.point(vec![1, 5]).unwrap_err().to_string(), "`y` has no coordinate 5: its size is 5");
}

#[test]
fn what_is_no_view_is_refused_with_its_reason() {
    let said = |error: ViewError| error.to_string();
    let slice = |offset, sizes: &[usize], strides: &[usize]| {
        said(Slice::new(offset, sizes.to_vec(), strides.to_vec()).unwrap_err())
    };
    assert_eq!(slice(0, &[2], &[1, 1]), "2 strides for 1 dimensions");
    assert_eq!(slice(0, &[4, 4], &[2, 1]), "the strides [2, 1] of the sizes [4, 4] lead to one rank twice");
    assert_eq!(slice(0, &[2], &[0]), "the strides [0] of the sizes [2] lead to one rank twice");
    assert_eq!(slice(usize::MAX, &[1], &[1]), "its last rank is beyond 2^53 - 1");
    assert_eq!(slice(1, &[2], &[(1 << 53) - 1]), "its last rank is beyond 2^53 - 1");
    assert_eq!(slice(1, &[0], &[usize::MAX]), "its last rank is beyond 2^53 - 1");
    let whole = view([("x", 4), ("y", 4)]);
    assert_eq!(said(whole.range("z", ..).unwrap_err()), "there is no dimension `z`; there are `x`, `y`");
    assert_eq!(said(whole.range("x", 4..9).unwrap_err()), "the range 4..9 of `x` is empty: its size is 4");
    assert_eq!(
        said(whole.range("x", step(5.., 2)).unwrap_err()),
        "the range 5.. step 2 of `x` is empty: its size is 4"
    );
    assert!(whole.group_by("z").is_err());
    // A published slice that its own `range` makes and its own check refuses.
    assert!(view([("x", 4), ("y", 5)]).range("y", step(.., 2)).is_ok());
}

#[test]
fn a_view_with_one_coordinate_left_may_be_stepped_by_anything() {
    let one = view([("x", 4)]).range("x", step(3.., usize::MAX)).unwrap();
    assert_eq!(ranks(&one), [3]);
}

#[test]
fn the_text_of_a_view_reads_back() {
    for (text, ranks_of_it) in [
        ("x=2/1", vec![0, 1]),
        ("6+x=1/4,y=2/1", vec![6, 7]),
        ("", vec![0]),
        ("6+", vec![6]),
        ("1+\"a b\\\"\\\\,=/\"=2/3", vec![1, 4]),
        ("0x=2/1", vec![0, 1]),
        ("größe=2/1", vec![0, 1]),
    ] {
        let view: View = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((ranks(&view), view.to_string().as_str()), (ranks_of_it, text));
    }
}

#[test]
fn what_is_no_text_of_a_view_is_refused_with_its_place() {
    for (text, says) in [
        ("x", "`=` with a size belongs at byte 1 of the view `x`"),
        ("x=", "a whole number belongs at byte 2 of the view `x=`"),
        ("x=2", "`/` with a stride belongs at byte 3 of the view `x=2`"),
        ("x=2/1;", "a comma belongs at byte 5 of the view `x=2/1;`"),
        ("x=2/1,", "a dimension's name belongs at byte 6 of the view `x=2/1,`"),
        ("=2/1", "a dimension's name belongs at byte 0 of the view `=2/1`"),
        ("\"x", "a closing quote belongs at byte 2 of the view `\\\"x`"),
        ("x=99999999999999999999/1", "the number at byte 2 of the view `x=99999999999999999999/1` is too large"),
        ("x=2/0", "`x=2/0` is no view"),
        ("\"\"=2/1", "`\\\"\\\"=2/1` is no view"),
    ] {
        assert_eq!(text.parse::<View>().unwrap_err().to_string(), says);
    }
}

/// A view that ranges have cut out of a whole.
fn any_view() -> impl Strategy<Value = (Extent, View)> {
    let dims = prop::collection::vec(1_usize..6, 0..4);
    dims.prop_flat_map(|sizes| {
        let cuts = sizes.iter().map(|size| (0..*size, 0..=*size, 1_usize..4)).collect::<Vec<_>>();
        (Just(sizes), cuts)
    })
    .prop_map(|(sizes, cuts)| {
        let labels: Vec<String> = (0..sizes.len()).map(|dim| format!("d{dim}")).collect();
        let whole = Extent::new(labels.clone(), sizes).unwrap();
        let cut = labels.iter().zip(cuts).fold(View::from(&whole), |view, (label, (begin, end, by))| {
            view.range(label, step(begin..end.max(begin + 1), by)).unwrap()
        });
        (whole, cut)
    })
}

proptest! {
    #[test]
    fn local_and_global_ranks_of_a_view_are_one_to_one((whole, view) in any_view()) {
        let globals = ranks(&view);
        prop_assert_eq!(globals.len(), view.num_ranks());
        prop_assert!(globals.is_sorted_by(|a, b| a < b), "cut by ranges, it keeps the order of the whole");
        for global in 0..whole.num_ranks() {
            let local = globals.iter().position(|own| *own == global);
            prop_assert_eq!(view.local(global), local);
            if let Some(local) = local {
                prop_assert_eq!(view.get(local), Some(global));
            }
        }
        prop_assert_eq!(view.get(globals.len()), None);
    }

    #[test]
    fn the_text_and_the_json_of_a_view_read_back((_, view) in any_view()) {
        prop_assert_eq!(&view.to_string().parse::<View>().unwrap(), &view);
        prop_assert_eq!(&serde_json::from_str::<View>(&serde_json::to_string(&view).unwrap()).unwrap(), &view);
    }

    #[test]
    fn groups_are_the_view_in_order((_, view) in any_view()) {
        for dim in view.labels() {
            let joined: Vec<usize> = view.group_by(dim).unwrap().flat_map(|group| ranks(&group)).collect();
            prop_assert_eq!(joined, ranks(&view));
        }
    }

    #[test]
    fn no_text_and_no_numbers_make_a_view_panic(text in ".{0,30}", offset: usize, sizes in prop::collection::vec(any::<usize>(), 0..4),
        strides in prop::collection::vec(any::<usize>(), 0..4)) {
        let _ = text.parse::<View>();
        let _ = format!("x={}/{}", sizes.first().unwrap_or(&0), strides.first().unwrap_or(&0)).parse::<View>();
        if let Ok(slice) = Slice::new(offset, sizes, strides) {
            let _ = (slice.coordinates(offset), slice.is_contiguous(), slice.num_ranks());
        }
    }
}
