// Package watermark decides how far event time has come. It is pure: state and event in, state out.
//
// A watermark w promises that no record with a timestamp of w or below will follow. A [Strategy] makes it of the largest timestamp
// seen; a [Tracker] combines the splits of a source, of which each has a watermark of its own, so that a split that is read faster
// than another makes none of the other's records late.
package watermark
