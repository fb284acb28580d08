package fetch

// Sign sets the checksum of a batch.
func Sign(frame []byte) { sign(frame) }

// Patience is how many errors in a row are left alone.
const Patience = patience
