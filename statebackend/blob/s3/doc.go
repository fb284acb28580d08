// Package s3 keeps checkpoints on S3 and on servers that speak its protocol, through gocloud.dev/blob.
//
// Write-once rests on the server: objects are put under the condition that the name is free (If-None-Match), for uploads in parts at
// their completion. A server that ignores the condition is noticed before the first object is written, see conditionCheck. An object
// carries a mark of its writer, by which a Put whose answer got lost recognises its own object.
//
// Requests are repeated by the AWS SDK; a connection on which nothing moves for the time of the timeout parameter is given up. Memory
// is bounded by largePuts uploads in parts at a time, about 50 MB each; objects of up to 1 MiB do not wait for those. The SDK computes
// and checks checksums of what is sent and read.
package s3
