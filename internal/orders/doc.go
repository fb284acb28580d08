// Package orders is the input that the demo and the end-to-end tests feed to a cluster, and the account of what comes out: numbered
// orders of users, summed per user in tumbling windows. Everything about order n follows from n, so the right answer can be computed
// independently of the system under test.
package orders
