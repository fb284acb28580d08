package codec

// For returns the codec of T.
func For[T any]() (Codec[T], error) { panic("not built yet") }

// ForKey returns the key codec of K.
func ForKey[K comparable]() (Key[K], error) { panic("not built yet") }
