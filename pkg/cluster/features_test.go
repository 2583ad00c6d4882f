package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

func TestFeaturesAreReadFromLeftToRight(t *testing.T) {
	for text, want := range map[string]string{
		"a": "a", "a&b": "a b", "a,b": "a b", "a|b": "a|b", "(a)": "a", "[a]": "a", "[a&b]": "a b",
		"a|b&c": "a|b c", "a&b|c": "(a&b)|c", "a|(b&c)": "a|(b&c)", "(a|b)&(c|d)": "a|b c|d",
		"(a|b)&c|d": "(a&c)|(b&c)|d", "[a|b]": "[a|b]", "[(a&b)|c]&d": "[(a&b)|c] d", "x.1-y_2": "x.1-y_2",
	} {
		list, err := cluster.ParseFeatures(text)
		if got := strings.Join(list, " "); err != nil || got != want {
			t.Errorf("%s: %q, %v, not %q", text, got, err, want)
		}
		again, err := cluster.ParseFeatures(cluster.FormatFeatures(list))
		if err != nil || !slices.Equal(again, list) {
			t.Errorf("%s: %q is read as %q, %v", text, cluster.FormatFeatures(list), again, err)
		}
	}
}

func TestBadFeaturesAreRefused(t *testing.T) {
	many := "a0"
	for i := range 16 {
		many += fmt.Sprintf("|a%d", i+1)
	}
	for _, text := range []string{
		"", "a&", "&a", "a||b", "(a", "a)", "[a|b", "a]", "a b", "a!", "[a|b]|c", "[a|b]&[c|d]", "[[a|b]|c]", "a*2", "[a*2&b*4]",
		"(a|b)*2", many, "a(b)", "[" + many + "]", "[(a|b)&(c|d)&(e|f)&(g|h)&(i|j)]",
	} {
		if list, err := cluster.ParseFeatures(text); err == nil {
			t.Errorf("%q is read as %q", text, list)
		}
	}
}

func TestNodesMeetConditionsOnFeatures(t *testing.T) {
	for _, c := range []struct {
		features, condition string
		met                 bool
	}{
		{"a b", "a", true}, {"a b", "c", false}, {"a", "a|b", true}, {"c", "a|b", false}, {"b", "a|(b&c)", false},
		{"b c", "a|(b&c)", true}, {"b", "[a|b]", true}, {"", "[a|b]", false}, {"", "a", false},
	} {
		if got := cluster.HasFeatures(strings.Fields(c.features), c.condition); got != c.met {
			t.Errorf("%q on a node with %q: %v", c.condition, c.features, got)
		}
	}
}

func TestConditionInBracketsIsOneOfSeveralSets(t *testing.T) {
	if got := fmt.Sprint(cluster.FeatureSets([]string{"x", "[a|(b&c)]", "y|z"})); got != "[[x a y|z] [x b c y|z]]" {
		t.Error(got)
	}
	if got := fmt.Sprint(cluster.FeatureSets([]string{"x", "a|b"})); got != "[[x a|b]]" {
		t.Error(got)
	}
}

func TestRequestHasFeaturesAsTheyAreWritten(t *testing.T) {
	for features, ok := range map[string]bool{
		"a": true, "a|b": true, "[a|b] c": true, "a|(b&c)": true, "a&b": false, "(a|b)": false, "[a|b] [c|d]": false, "a*2": false,
	} {
		spec := cluster.JobSpec{Request: cluster.Request{Features: strings.Fields(features)}}
		if err := spec.Validate(); (err == nil) != ok {
			t.Errorf("%s: %v", features, err)
		}
	}
}
