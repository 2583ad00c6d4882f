package provider

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/burst/aws/internal/ec2wire"
)

// permitted returns the actions of the policy in docs/burst-aws.md.
func permitted(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/burst-aws.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/burst-aws.md has no policy")
	}
	var policy struct {
		Statement []struct{ Action any }
	}
	if err := json.Unmarshal(block[1], &policy); err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, s := range policy.Statement {
		list, many := s.Action.([]any)
		if !many {
			list = []any{s.Action}
		}
		for _, action := range list {
			all[strings.TrimPrefix(action.(string), "ec2:")] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// TestPolicy: the policy of the document permits the calls that the program makes, and no others except the tags of a
// launch, which AWS treats as a call of their own.
func TestPolicy(t *testing.T) {
	c := newCloud(t)
	c.Inject(ec2wire.Fault{Action: "RunInstances", Code: "InvalidParameterValue", Times: 1})
	_, _ = c.launch(t.Context(), spotLaunch(1))
	id := c.mustLaunch(1)[0].ID
	_, _ = c.offers(t.Context())
	_, _ = c.list(t.Context())
	_, _ = c.console(t.Context(), id)
	_, _ = c.validate(t.Context())
	_, _ = c.terminate(t.Context(), []string{id})
	made := slices.DeleteFunc(permitted(t), func(action string) bool { return c.Calls(action) == 0 })
	want := slices.DeleteFunc(permitted(t), func(action string) bool { return action == "CreateTags" })
	if !slices.Equal(made, want) || c.AllCalls() != sum(c, made) {
		t.Errorf("the program calls %v, the policy permits %v; %d other calls", made, want, c.AllCalls()-sum(c, made))
	}
}

func sum(c *cloud, actions []string) int {
	n := 0
	for _, action := range actions {
		n += c.Calls(action)
	}
	return n
}
