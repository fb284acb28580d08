//go:build race

package driver

// underRace tells that the race detector runs, with which exploring is many times slower. There is one goroutine to look at.
const underRace = true
