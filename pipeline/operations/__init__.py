"""Running streams watched over: started again, told of, counted."""
