package fairshare_test

import (
	"fmt"

	"github.com/greylag/greylag/pkg/fairshare"
)

// ExampleTree_FairTree ranks the users of two accounts with equal shares. The account
// with less usage ranks first, with all of its users.
func ExampleTree_FairTree() {
	names := []string{"root", "physics", "ada", "bob", "biology", "cem"}
	tree, err := fairshare.NewTree([]fairshare.Member{
		{Parent: -1},
		{Parent: 0, Shares: 50},
		{Parent: 1, User: true, Shares: 1, Usage: 600},
		{Parent: 1, User: true, Shares: 1, Usage: 200},
		{Parent: 0, Shares: 50},
		{Parent: 4, User: true, Shares: 1, Usage: 100},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	tree.Sum()
	for i, f := range tree.FairTree(nil) {
		if f.FairShare > 0 {
			fmt.Printf("%s %.2f\n", names[i], f.FairShare)
		}
	}
	// Output:
	// ada 0.33
	// bob 0.67
	// cem 1.00
}
