package skew

import (
	"fmt"
	"os"
)

// roles are what the test's binary does when it is started with one of these
// words.
var roles = map[string]func(args []string) int{
	roleOwn: func([]string) int {
		d, err := Own()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(d)
		return 0
	},
}

const roleOwn = "skew-own"
