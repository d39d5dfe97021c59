//! The main job on a real libtorch.
