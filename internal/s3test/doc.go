// Package s3test is an S3 server in the test's own process: gofakes3 in memory, with what it lacks added (the condition that a name is free
// at the completion of an upload in parts, and refusal of unknown access keys), and with faults on demand. Signatures are not verified.
package s3test
