package statebackend

// aged is a value with the time of its last write, of a state whose entries expire.
type aged[V any] struct {
	value V
	at    stamp
}

func ageOf[V any](v aged[V]) stamp { return v.at }

// aging is what a snapshot needs to know which of a state's values have expired.
type aging[V any] struct {
	horizon
	age  func(v V) stamp
	trim func(v V, h *horizon) V // as of a table
}

// agingAt returns the state of things at a barrier; nil for a state whose entries do not expire.
func agingAt[V any](x *expiry, age func(v V) stamp, trim func(v V, h *horizon) V) *aging[V] {
	if x == nil {
		return nil
	}
	return &aging[V]{horizon: x.horizon, age: age, trim: trim}
}

// newAgedTable returns a table of values that expire. encode and decode are for a value without its stamp.
func newAgedTable[K comparable, V any](
	b *Backend[K], d *declaration, encode func([]byte, V) ([]byte, error), decode func([]byte) (V, error),
) *table[K, aged[V]] {
	t := newKeyTable(b, d, encodeAged(encode), nil)
	t.decode = decodeAged(decode)
	t.expiry, t.age = d.expiry, ageOf[V]
	d.expiry.reap = t.reap
	return &t
}

func encodeAged[V any](encode func([]byte, V) ([]byte, error)) func([]byte, aged[V]) ([]byte, error) {
	return func(dst []byte, v aged[V]) ([]byte, error) { return encode(dst, v.value) }
}

func decodeAged[V any](decode func([]byte) (V, error)) func([]byte, stamp) (aged[V], error) {
	return func(value []byte, at stamp) (aged[V], error) {
		v, err := decode(value)
		return aged[V]{v, at}, err
	}
}
