package server

import (
	"strings"
	"testing"

	"github.com/greylag/greylag/pkg/accounting"
)

// TestPayers lists accounts whose names sort next to "/" in every order.
func TestPayers(t *testing.T) {
	l := accounting.New()
	for i, chain := range []string{
		"ml/ann ml uni", "ml/bob ml uni", "ml-x/ann ml-x ml uni", "ml. uni", "ml0/zoe ml0", "ml uni", "a/b a ml-x ml uni", "m m0", "mlx/ann mlx ml uni",
	} {
		var c accounting.PayerPath
		for word := range strings.FieldsSeq(chain) {
			c = append(c, accounting.PayerID(word))
		}
		if _, err := l.Grant(accounting.Stamp{At: 1, Key: string(rune('a' + i))}, accounting.Grant{Owner: c, Class: accounting.Purchase, Amount: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct{ tops, want string }{
		{"", "m0 m ml0 ml0/zoe uni ml ml/ann ml/bob ml-x ml-x/ann a a/b mlx mlx/ann ml."},
		{"ml0", "ml0 ml0/zoe"}, {"ml.", "ml."}, {"m", "m"}, {"absent", ""}, {"ml-x", "ml-x ml-x/ann a a/b"},
		{"a ml", "a a/b ml ml/ann ml/bob ml-x ml-x/ann a a/b mlx mlx/ann"},
	} {
		var words []string
		for id := range payers(l, strings.Fields(x.tops)) {
			words = append(words, string(id))
		}
		if got := strings.Join(words, " "); got != x.want {
			t.Errorf("%q: %s, want %s", x.tops, got, x.want)
		}
	}
}
