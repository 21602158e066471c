"""Pure readers: exchanges to events, answers, usage and figures. They repair nothing and decide nothing."""
