package clusterdoc

import (
	"reflect"

	"github.com/pelletier/go-toml/v2"

	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/config/strict"
)

// KindOf returns the kind of a file by the keys that it sets: gctld, gnoded, gauthd, client, policy
// or accounts, the one that has most of them. It returns "" if several have as many, and for text that
// is not TOML.
func KindOf(text []byte) string {
	values := make(map[string]any)
	if err := toml.Unmarshal(text, &values); err != nil {
		return ""
	}
	most, found := 0, ""
	for kind, fields := range map[string]map[string]int{
		"gctld": strict.Keys(reflect.TypeFor[config.Controller]()), "gnoded": strict.Keys(reflect.TypeFor[config.Node]()), "gauthd": strict.Keys(reflect.TypeFor[config.Auth]()),
		"client": strict.Keys(reflect.TypeFor[config.Client]()), "policy": strict.Keys(reflect.TypeFor[policy]()),
		"accounts": strict.Keys(reflect.TypeFor[accounts]()),
	} {
		known := 0
		for key := range values {
			if _, ok := fields[key]; ok {
				known++
			}
		}
		switch {
		case known > most:
			most, found = known, kind
		case known == most:
			found = ""
		}
	}
	return found
}
