// Package steady helps drivers of remote storage to get along with a bad network: connections that end when nothing moves on them,
// readers that go on where they were cut, and errors that name the place and the way out. It does not decide what is worth another try; the drivers know their servers' answers.
package steady
