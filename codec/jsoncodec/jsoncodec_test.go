package jsoncodec_test

import (
	stdjson "encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/codec/jsoncodec"
)

// everything has what JSON can hold.
type everything struct {
	ID     int64              `json:"id"`
	Small  uint8              `json:"small"`
	Name   string             `json:"name"`
	Amount float64            `json:"amount"`
	Ok     bool               `json:"ok"`
	At     *int               `json:"at"`
	List   []int              `json:"list"`
	Map    map[string]int     `json:"map"`
	Any    any                `json:"any"`
	Raw    stdjson.RawMessage `json:"raw"`
	Bytes  []byte             `json:"bytes"`
	Nested struct{ A, B string }
}

// same compares with encoding/json: what it refuses is refused, what it takes is taken and means the same.
func same(t *testing.T, data []byte) {
	t.Helper()
	var want everything
	wantErr := stdjson.Unmarshal(data, &want)
	src := append([]byte{}, data...)
	got, err := jsoncodec.Decode[everything](src)
	clear(src)
	_, _ = jsoncodec.Decode[everything]([]byte(`{"name":"XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX"}`)) // would write over a shared buffer
	if wantErr != nil {
		require.Error(t, err, "%q: encoding/json says %v", data, wantErr)
		return
	}
	require.NoError(t, err, "%q", data)
	require.Empty(t, cmp.Diff(want, got), "%q", data)
	wantText, err := stdjson.Marshal(want)
	require.NoError(t, err)
	gotText, err := jsoncodec.Encode(got)
	require.NoError(t, err)
	require.Equal(t, string(wantText), string(gotText))
}

const document = `{"id":1234,"small":7,"name":"a\u00e9\n\"b <&>","amount":-1.5e3,"ok":true,"at":5,"list":[1,-2],"map":{"k":1,"l":2},` +
	`"any":[1,"x",null,{"a":true}],"raw":{"x" : [1]},"bytes":"AQID","unknown":{"a":[1,2.5,null,"\u00ff"]},"Nested":{"A":"é","B":""}}`

var odd = []string{
	document, ``, ` `, `null`, `{}`, `{}x`, `{} {}`, `[1]`, `"x"`, `{`, `{"id":01}`, `{"id":-}`, `{"id":1.0}`, `{"id":1e2}`, `{"id":"1"}`, `{"id":99999999999999999999}`,
	`{"id":-9223372036854775808}`, `{"small":256}`, `{"small":-1}`, "{\"name\":\"a\nb\"}", `{"name":"\x"}`, `{"name":"\u12"}`, `{"name":"\ud800"}`, "{\"name\":\"\xff\"}",
	`{"name":null}`, `{"NAME":"x"}`, `{"zzz":{"a":[1,2,{"b":tru}]}}`, `{"zzz":01}`, `{"zzz":"\x"}`, "{\"zzz\":\"\x01\"}", `{"id":1,}`, `{"id" 1}`, `{id:1}`, `{'id':1}`,
	`{"id":1 "small":2}`, `{"ok":tru}`, `{"ok":truex}`, `{"amount":1.}`, `{"amount":.5}`, `{"amount":1e}`, `{"amount":1e999}`, `{"amount":NaN}`, `{"at":null}`,
	`{"list":[1,2,]}`, `{"list":[1 2]}`, `{"list":null}`, `{"map":{"a":1,}}`, `{"map":{"a":1,"a":2}}`, `{"any":1e400}`, `{"raw":{"x":01}}`, "{\"id\":1}\x00", "\xef\xbb\xbf{}",
	`{"name":"\u0000\"\\\/\b\f\n\r\t"}`, `{"id":1}//c`, " {\t\"id\" :\r\n1 } ", `{"":1}`, `{"name":"x`, `{"name`, `{"name"`, `{"name":`, `{"id":1`, `{"zzz":[}`, `{"zzz":{]}`, `{"zzz":nul}`,
	`{"zzz":{"a"}}`, `{"zzz":{"a":}}`, `{"zzz":{,}}`, `{"zzz":[,]}`, `{"zzz":-}`, `{"zzz":1.}`, `{"id":1}}`, `{"id":0x10}`, `{"id":+1}`, `{"id":1_000}`, `{"id":true}`, `{"id":1,"id":2}`, `{"bytes":"A"}`,
}

func TestJSONIsWhatTheStandardLibraryTakesAndMakes(t *testing.T) {
	for _, text := range odd {
		same(t, []byte(text))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	alphabet := []byte("{}[]\":,\\0123456789.eE+-truefalsn \n\x00\xff")
	for range 20_000 {
		b := []byte(document)
		for range 1 + rnd.IntN(2) {
			at, c := rnd.IntN(len(b)), alphabet[rnd.IntN(len(alphabet))]
			switch rnd.IntN(4) {
			case 0:
				b[at] = c
			case 1:
				b = append(b[:at], b[at+1:]...)
			case 2:
				b = append(b[:at], append([]byte{c}, b[at:]...)...)
			case 3:
				b = b[:at+1]
			}
		}
		same(t, b)
	}
}

func FuzzJSON(f *testing.F) {
	for _, text := range odd {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) { same(t, b) })
}

func TestStateInJSONIsReadWithoutItsType(t *testing.T) {
	c := jsoncodec.For[everything]()
	want, err := jsoncodec.Decode[everything]([]byte(document))
	require.NoError(t, err)
	b, err := c.Append([]byte("before"), want)
	require.NoError(t, err)
	got, err := c.Decode(b[len("before"):])
	require.NoError(t, err)
	want.Raw = stdjson.RawMessage(`{"x":[1]}`)
	require.Empty(t, cmp.Diff(want, got))
	_, err = c.Decode([]byte("{"))
	require.ErrorIs(t, err, codec.ErrInvalid)

	free, err := codec.DecodeValue(c.ID(), []byte(`{"id":9007199254740993}`))
	require.NoError(t, err)
	require.Equal(t, "map[id:9007199254740993]", fmt.Sprint(free))
	_, err = codec.DecodeValue(c.ID(), []byte(`{}{}`))
	require.ErrorIs(t, err, codec.ErrTrailing)
}

func ExampleDecode() {
	type bid struct {
		Auction int    `json:"auction"`
		Channel string `json:"channel"`
	}
	// As the decode function of a Kafka source: func(r kafkasource.Record) (bid, error) { return jsoncodec.Decode[bid](r.Value) }
	b, err := jsoncodec.Decode[bid]([]byte(`{"auction": 7, "channel": "web", "price": 12}`))
	fmt.Println(b, err)
	_, err = jsoncodec.Decode[bid]([]byte(`{"auction": seven}`))
	fmt.Println(err)
	// Output:
	// {7 web} <nil>
	// invalid character 's' looking for beginning of value
}

func BenchmarkDecode(b *testing.B) {
	data := []byte(document)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jsoncodec.Decode[everything](data); err != nil {
			b.Fatal(err)
		}
	}
}
